"""The search for thresholds, against all thresholds that there are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from fedssca.data.split import Columns, Rows
from fedssca.evaluate import thresholds
from fedssca.evaluate.biases import biases
from fedssca.evaluate.certificate import BestPoints, feasible
from fedssca.evaluate.evaluator import Evaluator, evaluator_over
from fedssca.evaluate.thresholds import PASSES, TOTAL, search, set_thresholds
from fedssca.problem.constraints import TrainingRows, from_config
from fedssca.problem.models import classifier, linear, mlp
from fedssca.problem.problem import Array, Problem

pytestmark = pytest.mark.usefixtures("float64")

N = 300
KINDS = {
    "fnr": 0.05,
    "fpr": 0.1,
    "recall": 0.9,
    "precision": 0.85,
    "parity": 0.05,
    "opportunity": 0.03,
}


def draw(classes: int, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows with a group, and the weights of a linear model that fits them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 3))
    y = (x[:, :classes] + rng.normal(size=(N, classes))).argmax(axis=1)
    sex = rng.random(N) < 0.3 + 0.4 * (x[:, 0] > 0)
    weights = np.array([[-1.2, 1.2, 0.0]]) if classes == 2 else 1.2 * np.eye(3)
    return {"x": x, "y": y.astype(np.int32), "sex": sex.astype(np.int32)}, weights


def limited(
    columns: dict[str, np.ndarray], classes: int, limits: dict[str, float], **form: Any
) -> Problem:
    made = [
        constraint
        for kind, limit in limits.items()
        for constraint in from_config(
            kind,
            limit,
            ({} if kind == "loss" else {"positive": 1})
            | ({"column": "sex"} if kind in ("parity", "opportunity") else {}),
            TrainingRows(columns, range(classes), (len(columns["y"]),)),
        )
    ]
    width = columns["x"].shape[1]
    return classifier(linear(width, classes, dtype="float64"), made, **form)


def rows_of(columns: dict[str, np.ndarray]) -> Rows:
    return Rows(columns, (len(columns["y"]),))


def begun(look: Evaluator, w: Array) -> tuple[BestPoints, dict[str, Any]]:
    points, row = BestPoints(), look.row(w) | {"round": 9}
    points.see(w, row)
    return points, row


# The search --------------------------------------------------------------------------------------


def test_a_threshold_by_hand() -> None:
    """Of four positive rows one may be missed, so the row with z = 0 must be counted as positive.

    Scores (0, z + w_0) predict the first class where they are equal, so w_0 must be above 0. The
    loss falls as w_0 falls towards 0, because the negative rows are the many.
    """
    z = np.array([-2.0, 0.0, 1.0, 2.0, -3.0, -1.0, -1.0, 0.5, 0.5, 0.5])
    columns = {"x": z[:, None], "y": (np.arange(10) < 4).astype(np.int32)}
    limits = from_config(
        "fnr", 0.25, {"positive": 1, "sharpness": 4.0}, TrainingRows(columns, range(2), (10,))
    )
    p = classifier(linear(1, 2, dtype="float64"), limits)
    look, w = evaluator_over(p, rows_of(columns), None), jnp.array([-0.7, 1.0])
    points, row = begun(look, w)
    assert row["constraints"] == [pytest.approx(0.25)]
    set_thresholds(p, look, points, w, row, biases(p, rows_of(columns)))
    assert points.best is not None
    found, there = points.best
    assert 0 < float(found[0]) < 1e-3
    assert float(found[1]) == 1.0
    assert there["constraints"] == [0.0]
    assert there["round"] == 9


@pytest.mark.parametrize("kind", KINDS)
def test_no_threshold_is_better(kind: str) -> None:
    """Against every threshold: just below and above each row's score, and the free minimum."""
    columns, weights = draw(2)
    p = limited(columns, 2, {kind: KINDS[kind]})
    look = evaluator_over(p, rows_of(columns), None)
    at = lambda s: jnp.array([s, *weights.ravel()])  # noqa: E731
    ends = -(columns["x"] @ weights.T).ravel()
    tried = np.concatenate([ends - 1e-9, ends + 1e-9, np.linspace(-2, 2, 201)])
    oracle = min(r["objective"] for s in tried if feasible(r := look.row(at(s))))
    line = np.array([1.0, 0.0, 0.0, 0.0])
    for shift in (0.0, 2.5, -4.0):
        points, row = begun(look, at(shift))
        _, passes = search(look, points, (at(shift), row), line)
        assert points.best is not None
        assert points.best[1]["objective"] == pytest.approx(oracle, rel=3e-4)
        assert points.best[1] == look.row(points.best[0]) | {"round": 9}
        assert 0 < passes <= PASSES
        points, row = begun(look, at(shift))  # all of w may move: better than any threshold
        assert 0 < set_thresholds(p, look, points, at(shift), row, np.array([0])) <= TOTAL
        assert points.best is not None
        assert points.best[1]["objective"] <= oracle * (1 + 3e-4)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_three_classes(kind: str) -> None:
    """From biases without limits, where a limit is missed by 0.03: a grid is little better.

    The grid has two biases, because the same shift of all three changes nothing.
    """
    columns, weights = draw(3)
    rows = rows_of(columns)
    far = limited(columns, 3, {kind: KINDS[kind]})
    look = evaluator_over(far, rows, None)
    at = lambda free: jnp.array([*free, *weights.ravel()])  # noqa: E731
    w = at(minimize(lambda free: look.row(at(free))["objective"], np.zeros(3), tol=1e-4).x)
    rate = look.row(w)[f"train_{far.names[0]}"]
    limit = rate + 0.03 if kind in ("recall", "precision") else abs(rate) - 0.03
    p = limited(columns, 3, {kind: limit})
    look = evaluator_over(p, rows, None)
    points, row = begun(look, w)
    assert not feasible(row)
    set_thresholds(p, look, points, w, row, biases(p, rows))
    steps = np.stack(np.meshgrid(*2 * [np.linspace(-2, 2, 101)]), axis=-1).reshape(-1, 2)
    batch = {name: jnp.asarray(column) for name, column in columns.items()}

    @jax.jit
    def means(pair: Array) -> Array:
        return p.terms(w.at[1:3].add(pair), batch).mean(axis=1)

    values = np.asarray(jax.lax.map(means, jnp.asarray(steps), batch_size=500)) @ p.combine.T
    kept = (values[:, 1:] <= p.limits + 1e-12).all(axis=1)
    assert points.best is not None
    assert points.best[1]["objective"] <= 1.02 * values[kept, 0].min()


def test_two_limits_leave_a_narrow_window() -> None:
    columns, weights = draw(2)
    z, y = (columns["x"] @ weights.T).ravel(), columns["y"]
    rate = lambda rows, s: float(np.mean(z[rows] + s > 0))  # noqa: E731
    limits = {"fnr": 1 - rate(y == 1, 0.4), "fpr": rate(y == 0, 0.405)}
    p = limited(columns, 2, limits)
    look, w = evaluator_over(p, rows_of(columns), None), jnp.array([-1.0, *weights.ravel()])
    points, row = begun(look, w)
    set_thresholds(p, look, points, w, row, np.array([0]))
    assert points.best is not None
    assert 0.3 < float(points.best[0][0]) < 0.5


def test_limits_that_contradict_each_other() -> None:
    columns, weights = draw(2)
    p = limited(columns, 2, {"fnr": 0.01, "fpr": 0.01})
    look, w = evaluator_over(p, rows_of(columns), None), jnp.array([3.0, *weights.ravel()])
    points, row = begun(look, w)
    assert set_thresholds(p, look, points, w, row, np.array([0])) <= TOTAL
    assert points.best is None
    assert points.least is not None
    assert max(points.least[1]["constraints"]) < max(row["constraints"])


def test_an_idle_limit_leaves_the_free_minimum() -> None:
    columns, weights = draw(2)
    p = limited(columns, 2, {"fnr": 0.9})
    look, w = evaluator_over(p, rows_of(columns), None), jnp.array([0.8, *weights.ravel()])
    points, row = begun(look, w)
    set_thresholds(p, look, points, w, row, np.array([0]))
    assert points.best is not None
    assert abs(look.gradients(points.best[0])[0][0]) < 0.01


def test_the_best_point_and_the_last_one_are_both_moved() -> None:
    columns, weights = draw(2)
    p = limited(columns, 2, {"fnr": 0.05})
    look = evaluator_over(p, rows_of(columns), None)
    good, poor = jnp.array([0.0, *weights.ravel()]), jnp.array([9.0, 0.0, 0.1, 0.3])
    points, _ = begun(look, poor)
    set_thresholds(p, look, points, good, look.row(good) | {"round": 10}, np.array([0]))
    assert points.best is not None
    alone, row = begun(look, good)
    search(look, alone, (good, row), np.array([1.0, 0.0, 0.0, 0.0]))
    assert alone.best is not None
    assert points.best[1]["objective"] <= alone.best[1]["objective"]


# Where it runs -----------------------------------------------------------------------------------


def test_parties_with_columns_set_the_same_thresholds() -> None:
    """Clients with rows, clients with columns, and sums that come from elsewhere.

    A deployment, with or without secure sums, has an `Evaluator` of its own whose `row` and
    `gradients` join sums of the sites; nothing else is used.
    """
    columns, weights = draw(2)
    rows, blocks = rows_of(columns), [np.array([0, 2]), np.array([1])]
    split = limited(columns, 2, {"parity": 0.05}, features=blocks)
    assert split.vertical is not None
    parties = Columns(columns, tuple(blocks))
    plain = limited(columns, 2, {"parity": 0.05})
    here = evaluator_over(plain, rows, None)

    def refuse(other: Rows | Columns) -> Evaluator:
        raise AssertionError

    away = Evaluator(lambda w: here.row(w), lambda w: here.gradients(w), refuse, here.tally)
    w, found = jnp.array([0.0, *weights.ravel()]), []
    for p, like, look in (
        (plain, rows, here),
        (split, parties, evaluator_over(split, parties, None)),
        (plain, rows, away),
    ):
        points, row = begun(look, w)
        set_thresholds(p, look, points, w, row, biases(p, like))
        assert points.best is not None
        found.append(np.asarray(points.best[0]))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_nothing_is_done_without_counts() -> None:
    columns, weights = draw(2)
    w, points, p = (
        jnp.array([0.0, *weights.ravel()]),
        BestPoints(),
        limited(columns, 2, {"loss": 1}),
    )
    look = evaluator_over(p, rows_of(columns), None)
    row = look.row(w) | {"round": 0}
    assert set_thresholds(p, look, points, w, row, np.array([0])) == 0
    assert points == BestPoints()


def test_a_model_without_biases_moves_along_the_gradient() -> None:
    columns, _ = draw(2)
    limits = from_config("fnr", 0.1, {"sharpness": 4.0}, TrainingRows(columns, range(2), (N,)))
    p = classifier(mlp(3, 4, 2, dtype="float64"), limits)
    look, points = evaluator_over(p, rows_of(columns), None), BestPoints()
    row = look.row(p.start) | {"round": 9}
    assert not feasible(row)
    positions = biases(p, rows_of(columns))
    assert positions is None
    assert 0 < set_thresholds(p, look, points, p.start, row, positions) <= PASSES + 1
    assert points.best is not None
    assert feasible(look.row(points.best[0]))


def test_points_that_are_not_finite_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, weights = draw(2)
    p = limited(columns, 2, {"fnr": 0.05})
    look, w = evaluator_over(p, rows_of(columns), None), jnp.array([0.0, *weights.ravel()])
    points, row = begun(look, w)
    lost = Evaluator(lambda w: look.row(w * np.nan), look.gradients, look.over, look.tally)
    monkeypatch.setattr(thresholds, "PASSES", 8)
    set_thresholds(p, lost, points, w, row, np.array([0]))
    assert points.best is None
    assert points.least is not None
    assert points.least[0] is w
