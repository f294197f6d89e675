"""What is fixed before the calibration rows are looked at, and what a statement refuses."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.data.split import Rows
from fedssca.evaluate import confidence
from fedssca.evaluate.confidence import Calibration
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.problem.problem import Problem

RNG = np.random.default_rng(0)


def table(rows: int, shift: float) -> dict[str, np.ndarray]:
    y = (RNG.random(rows) < 0.3 + shift).astype(np.int32)
    x = RNG.normal(size=(rows, 2)).astype(np.float32) + y[:, None]
    return {"x": x, "y": y, "group": (RNG.random(rows) < 0.4 + shift).astype(np.int32)}


def posed(train: dict[str, np.ndarray]) -> Problem:
    limits = [
        *fedssca.false_negative_rate_at_most(0.2, train["y"], positive=1),
        *fedssca.parity_gap_at_most(0.1, train["group"], "group", positive=1),
        *fedssca.loss_at_most(0.6),
    ]
    return fedssca.classifier(fedssca.linear(2, 2), limits)


@pytest.mark.parametrize("each_site", [False, True])
def test_only_the_number_of_calibration_rows_is_known_before_testing(each_site: bool) -> None:
    """Path and bets must not depend on classes and groups of rows that are tested afterwards."""
    train = table(400, 0.0)
    problem, clients = posed(train), Rows(train, (300, 100))
    tally = evaluator_over(problem, clients, None).tally(problem.start)
    owners = np.repeat(np.arange(2, dtype=np.int32), (60, 40))
    found = [
        confidence.Tester(
            problem, Calibration(table(100, shift) | {"client": owners}, 0.9, each_site, clients=2)
        ).expected_rows(tally)
        for shift in (0.0, 0.4)
    ]
    for quantity, rows in found[0].items():
        np.testing.assert_array_equal(rows, found[1][quantity])
    fewest = 40 if each_site else 100
    assert found[0]["fnr"] == pytest.approx([fewest * train["y"].mean()])
    assert found[0]["cost"] == pytest.approx([fewest])


@pytest.mark.parametrize(("largest", "passes"), [(1.0, True), (10.0, False)])
def test_a_function_of_the_user_is_a_rate_only_if_its_values_are_0_and_1(
    largest: float, passes: bool
) -> None:
    def terms(w: jnp.ndarray, batch: dict[str, jnp.ndarray]) -> jnp.ndarray:
        return jnp.stack([jnp.square(batch["x"] @ w), largest * batch["group"]])

    train, held = table(50, 0.0), table(200, 0.0)
    problem = fedssca.custom_problem(terms, jnp.ones(2), limits=[0.9])
    tester = confidence.Tester(
        problem, Calibration(held | {"client": np.zeros(200, np.int32)}, 0.9)
    )
    clients = Rows(train, (50,))
    tally = evaluator_over(problem, clients, None).tally(problem.start)
    statement = tester.test(problem.start, tally)
    assert statement.passed == passes
    said = tester.what_is_missing(problem.start, statement)
    assert bool(said) != passes
    assert all("nothing is known of their range" in line for line in said)
