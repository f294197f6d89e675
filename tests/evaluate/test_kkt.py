"""The KKT residual: zero at known solutions, positive elsewhere, and free of units."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Rows
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.evaluate.kkt import judge_prices, more_rounds, objective_scale, optimality
from fedssca.problem.custom import custom_problem

pytestmark = pytest.mark.usefixtures("float64")


def test_the_residual_is_zero_at_a_known_kkt_point() -> None:
    """min |w|^2 s.t. mean (1 - x'w) <= 0 is solved by xbar / |xbar|^2 with 2 / |xbar|^2."""
    x = np.random.default_rng(0).normal(size=(30, 4)) + 1
    p = custom_problem(
        lambda w, batch: 1 - (batch["x"] @ w)[None],
        jnp.zeros(4),
        limits=[0.0],
        combine=[[0], [1]],
        known=1.0,
    )
    look, mean = evaluator_over(p, Rows({"x": x}, (30,)), None), x.mean(axis=0)

    def at(w: jnp.ndarray) -> tuple[float, np.ndarray]:
        row, length = look.row(w), max(float(jnp.linalg.norm(w)), 1e-3)
        values = np.array(row["constraints"])
        found = optimality(look.gradients(w), row["objective"], values, length)
        return found.residual, found.fitted

    residual, nu = at(jnp.asarray(mean / (mean @ mean)))
    assert residual < 1e-9
    np.testing.assert_allclose(nu, [2 / (mean @ mean)], rtol=1e-10)
    for factor in (0.0, 0.9, 1.1):  # infeasible, infeasible, not optimal
        assert at(jnp.asarray(factor * mean / (mean @ mean)))[0] > 0.01


def test_prices_of_active_limits_are_found_and_idle_ones_are_zero() -> None:
    others = np.random.default_rng(1).normal(size=(3, 6))
    gradients = np.concatenate([[-(1.0 * others[0] + 2.5 * others[1])], others])
    found = optimality(gradients, 1.0, np.array([0.0, 0.0, -3.0]), 1.0)
    assert found.residual < 1e-12
    np.testing.assert_allclose(found.fitted, [1.0, 2.5, 0.0], atol=1e-12)
    assert found.active.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("objective", "value", "least"),
    [
        ([1.0, 0.0], 0.0, 0.9),  # the multiplier would have to be negative
        ([-1.0, 1.0], 0.0, 0.4),  # not along the constraint
        ([-1.0, 0.0], 0.5, 0.5),  # violated by a half
        ([-1.0, 0.0], -2.0, 0.1),  # the constraint is idle
        ([0.0, 0.0], 0.25, 0.25),
    ],
)
def test_the_residual_is_positive_elsewhere(objective, value: float, least: float) -> None:
    found = optimality(np.array([objective, [1.0, 0.0]]), 1.0, np.array([value]), 1.0)
    assert found.residual >= least - 1e-12
    assert (found.fitted >= 0).all()


@pytest.mark.parametrize("unit", ["objective", "constraint", "length"])
def test_units_change_neither_the_residual_nor_what_is_active(unit: str) -> None:
    rng, k = np.random.default_rng(2), 1000.0
    gradients, values = rng.normal(size=(3, 5)), np.array([-0.001, 0.02])
    plain = optimality(gradients, 2.0, values, 0.7)
    scaled, there, scale, length = gradients.copy(), values.copy(), 2.0, 0.7
    if unit == "objective":
        scaled[0], scale = k * scaled[0], k * scale
    elif unit == "constraint":
        scaled[1], there[0] = k * scaled[1], k * there[0]
    else:
        scaled, length = scaled / k, k * length
    found = optimality(scaled, scale, there, length)
    assert found.residual == pytest.approx(plain.residual, rel=1e-9)
    assert found.active.tolist() == plain.active.tolist()


def test_a_count_that_one_more_row_would_break_is_active() -> None:
    """FNR <= 1 % of 170 rows allows one miss: 0.7 of a row is left then, which is nothing."""
    slopes, one_row = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1 / 170])
    for misses, active in ((1, True), (0, False)):
        value = np.array([misses / 170 - 0.01])
        found = optimality(slopes, 1.0, value, 0.01, one_row)
        assert found.active[0] == active
        assert (found.fitted[0] > 0) == active
        assert not optimality(slopes, 1.0, value, 0.01).active[0]


def test_without_constraints_it_is_what_the_objective_still_changes() -> None:
    found = optimality(np.array([[0.3, 0.4]]), 2.0, np.zeros(0), 1.0)
    assert found.residual == pytest.approx(0.25)
    assert found.fitted.shape == (0,)


def test_prices_that_contradict_each_other_are_withheld() -> None:
    gradients = np.array([[-1.0, 0.5], [1.0, 0.0]])
    found = optimality(gradients, 1.0, np.zeros(1), 1.0)
    prices, why = judge_prices(found, [3.0], None)
    assert prices == [None]
    assert "withheld" in why
    prices, why = judge_prices(found, [1.05], None)
    assert (prices, why) == ([1.05], "")


def test_a_larger_residual_asks_for_more_rounds() -> None:
    asked = [more_rounds(residual, 1000) for residual in (0.06, 0.2, 0.9)]
    assert asked == sorted(asked)
    assert asked[0] > 0


def test_the_fall_of_the_objective_counts_only_if_the_rounds_made_it() -> None:
    def rows(*objectives: float) -> list[dict[str, float]]:
        return [{"round": 10 * k, "objective": value} for k, value in enumerate(objectives)]

    assert objective_scale(0.001, rows(2.3, 0.5, 0.1, *[0.001] * 8)) == pytest.approx(0.2299)
    assert objective_scale(-7.0, rows(1e9, 9e8, *[8e8] * 9)) == 7.0
    assert objective_scale(3.0, []) == objective_scale(3.0, rows(3.0)) == 3.0
    assert objective_scale(3.0, rows(9.0, 3.0)[1:]) == 3.0  # the start was not evaluated
