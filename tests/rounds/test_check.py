"""What does not fit is said in one line, with the client."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.methods.schedule import power
from fedssca.methods.sgd import sgd
from fedssca.problem.custom import custom_problem
from fedssca.problem.models import classifier, mlp
from fedssca.problem.tasks import CLASSIFICATION, Task, multilabel, regression
from fedssca.rounds.check import check_fit
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local

BLOCKS = (np.arange(3), np.arange(3, 7))
PLAIN = classifier(mlp(7, 5, 3))
SPLIT = classifier(mlp(7, 5, 3), features=BLOCKS)


def method(batch: int, steps: int = 1):
    return sgd(PLAIN, batch=batch, rate=power(0.1), steps=steps)


@pytest.fixture
def parties(columns) -> Columns:
    return Columns(columns, BLOCKS)


def test_what_fits_passes(columns, parties: Columns) -> None:
    check_fit(PLAIN, Rows(columns, (20, 40)), method(20, steps=5))
    check_fit(SPLIT, Rows(columns, (60,)), method(60))
    check_fit(SPLIT, parties, method(60))


@pytest.mark.parametrize("batch", [0, -3])
def test_an_empty_batch(columns, parties: Columns, batch: int) -> None:
    for clients in (Rows(columns, (60,)), parties):
        with pytest.raises(UserError, match=f"batch = {batch}: .* at least 1"):
            check_fit(SPLIT, clients, method(batch))


def test_labels_for_which_the_model_has_no_score(columns) -> None:
    for model, task, said in (
        (mlp(7, 5, 2), CLASSIFICATION, "2 scores per row, so that y is at most 1, .* y = 2"),
        (mlp(7, 5, 1), multilabel(["a"]), "1 scores per row, so that y is at most 1, .* y = 2"),
    ):
        with pytest.raises(UserError, match=said):
            check_fit(classifier(model, task=task), Rows(columns, (60,)), method(10))


@pytest.mark.parametrize(
    ("task", "y", "said"),
    [
        (CLASSIFICATION, np.int32(-1), "y = -1, but y must be at least 0"),
        (CLASSIFICATION, np.float32(0.5), "y = 0.5, which is no number of a class"),
        (regression("poisson"), np.float32(-2), "y = -2, but y must be at least 0"),
        (regression(), np.zeros((60, 1), np.float32), r"y has shape \(60, 1\)"),
    ],
)
def test_labels_that_the_task_does_not_have(columns, task: Task, y: np.ndarray, said: str) -> None:
    rows = {**columns, "y": y if y.ndim else np.full(60, y)}
    with pytest.raises(UserError, match=said):
        check_fit(classifier(mlp(7, 5, 3), task=task), Rows(rows, (60,)), method(10))


def test_a_batch_larger_than_a_clients_rows(columns) -> None:
    text = "batch = 21 is larger than client 2's 10 rows: use a batch of at most 10"
    with pytest.raises(UserError, match=text):
        check_fit(PLAIN, Rows(columns, (30, 20, 10)), method(21))


def test_a_batch_larger_than_the_parties_rows(parties: Columns) -> None:
    with pytest.raises(UserError, match="batch = 61 is larger than the 60 rows"):
        check_fit(SPLIT, parties, method(61))


def test_local_steps_with_columns(parties: Columns) -> None:
    with pytest.raises(UserError, match=r"local_steps = 3: .* use local_steps = 1"):
        check_fit(SPLIT, parties, method(10, steps=3))


def test_columns_without_a_vertical_form(parties: Columns) -> None:
    with pytest.raises(UserError, match="no vertical form"):
        check_fit(PLAIN, parties, method(10))


def test_another_number_of_parties(columns) -> None:
    three = Columns(columns, (np.arange(3), np.arange(3, 5), np.arange(5, 7)))
    with pytest.raises(UserError, match="written for 2 parties, but 3 hold data"):
        check_fit(SPLIT, three, method(10))


@pytest.mark.parametrize("runtime", [Fused, Local])
def test_runtimes_check_before_they_start(columns, runtime) -> None:
    with pytest.raises(UserError, match="client 0's 5 rows"):
        runtime(PLAIN, Rows(columns, (5, 55)), method(10), seed=0)


def test_terms_that_mix_rows(columns) -> None:
    def posed(center):
        def terms(w, batch):
            return jnp.square((batch["x"] - center(batch["x"])) @ w)[None]

        problem = custom_problem(terms, np.ones(7))
        return problem, Rows(columns, (60,)), sgd(problem, batch=10, rate=power(0.1))

    check_fit(*posed(lambda x: 1.0))
    with pytest.raises(UserError, match="one value for each row"):
        check_fit(*posed(lambda x: x.mean(0)))
