"""The path of models: fixed by training rows, straight between its bends, tested in order."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.data.split import Rows
from fedssca.evaluate import confidence
from fedssca.evaluate.confidence import Calibration, certify_path, path
from fedssca.evaluate.confidence.path import (
    KNOTS,
    MOST_TESTED,
    SHARES,
    cautious_to_bold,
    last_passed,
)
from fedssca.evaluate.evaluator import Evaluator, evaluator_over
from fedssca.problem.problem import Array, Problem

RNG = np.random.default_rng(0)


def table(rows: int) -> dict[str, np.ndarray]:
    y = (RNG.random(rows) < 0.4).astype(np.int32)
    x = RNG.normal(size=(rows, 2)).astype(np.float32) + y[:, None]
    return {"x": x, "y": y, "client": np.zeros(rows, np.int32)}


@pytest.fixture(scope="module")
def trained() -> tuple[Problem, Evaluator, tuple[Array, dict[str, object]]]:
    """A model whose false-negative rate is 0.2 on training rows."""
    rows = table(500)
    limits = fedssca.false_negative_rate_at_most(0.2, rows["y"], positive=1)
    problem = fedssca.classifier(fedssca.linear(2, 2), limits)
    evaluator = evaluator_over(problem, Rows(rows, (500,)), None)
    bias = np.quantile(-rows["x"][rows["y"] == 1].sum(axis=1), 0.82)
    w = jnp.asarray([bias, 1.0, 1.0], jnp.float32)
    return problem, evaluator, (w, evaluator.row(w) | {"round": 9})


def test_the_path_leads_from_twice_the_margin_to_the_trained_model(
    trained: tuple[Problem, Evaluator, tuple[Array, dict[str, object]]],
) -> None:
    problem, evaluator, start = trained
    testers = [
        confidence.Tester(problem, Calibration(table(300) | {"y": np.full(300, y, np.int32)}, 0.9))
        for y in (0, 1)
    ]
    paths = [
        cautious_to_bold(problem, evaluator, tester, start, np.array([0]))[0] for tester in testers
    ]
    np.testing.assert_array_equal(*paths)  # whatever the calibration rows are
    assert len(SHARES) < len(paths[0]) <= MOST_TESTED
    rates = [evaluator.row(w)["train_fnr"] for w in paths[0]]
    assert rates == sorted(rates)
    assert rates[0] == 0  # thresholds far inside the limit
    path = paths[0][-len(SHARES) :]
    np.testing.assert_array_equal(path[-1], start[0])
    rates = rates[-len(SHARES) :]
    assert rates[0] < 0.1 < rates[-1] <= 0.2
    first, bend = path[SHARES.index(KNOTS[0])], path[4]
    middle = path[SHARES.index(1.6)]
    assert np.linalg.norm(middle - first) <= np.linalg.norm(bend - first)


def test_the_last_model_before_the_first_failure_is_returned(
    trained: tuple[Problem, Evaluator, tuple[Array, dict[str, object]]],
) -> None:
    problem, evaluator, (w, _) = trained
    tester = confidence.Tester(problem, Calibration(table(300), 0.9))
    safe, unsafe = w + jnp.asarray([5.0, 0, 0]), w - jnp.asarray([5.0, 0, 0])
    found, statement, tested = last_passed(tester, evaluator, [safe, unsafe, safe + 1])
    assert found is safe
    assert statement is not None
    assert statement.passed
    assert tested == 2
    assert last_passed(tester, evaluator, [unsafe, safe]) == (None, None, 1)


def test_a_model_that_passes_behind_a_failure_is_not_certified_and_this_is_said(
    trained: tuple[Problem, Evaluator, tuple[Array, dict[str, object]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, evaluator, (w, row) = trained
    tester = confidence.Tester(problem, Calibration(table(300), 0.9))
    safe, unsafe = w + jnp.asarray([5.0, 0, 0]), w - jnp.asarray([5.0, 0, 0])
    monkeypatch.setattr(path, "cautious_to_bold", lambda *_: ([unsafe, safe], 0))
    found = certify_path(problem, evaluator, tester, (safe, row), None)
    assert found.point is None
    assert all(claim.passed for claim in found.claims)
    assert found.notes == [path.FIRST_FAILED]
    assert [entry["certified"] for entry in found.entries.values()] == [False]
