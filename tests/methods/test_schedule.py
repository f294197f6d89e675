"""Step sizes: their values, and which of the theorems' conditions they break."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.methods.schedule import Schedule, broken_conditions, power

# What each condition is called in the message, in the order of the theorems.
RHO_ZERO, RHO_SUM = "rho -> 0", "sum rho = inf"
ZERO, SUM, SQUARES, RATIO = "gamma -> 0", "sum gamma = inf", "sum gamma^2 < inf", "gamma / rho -> 0"


@pytest.mark.parametrize(("a", "alpha"), [(0.9, 0.0), (1.0, 0.55), (0.3, 1.0), (0.5, 2.0)])
def test_values(a: float, alpha: float) -> None:
    schedule = power(a, alpha)
    assert [float(schedule(t)) for t in (1, 2, 10, 1000)] == pytest.approx(
        [a * math.exp(-alpha * math.log(t)) for t in (1, 2, 10, 1000)], rel=1e-6
    )


def test_it_takes_whole_and_traced_rounds() -> None:
    schedule = power(1.0, 0.5)
    assert float(jax.jit(lambda t: schedule(t))(np.int32(4))) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rho", "gamma", "broken"),
    [
        (0.55, 0.9, []),
        (0.3, 0.51, []),
        (0.9, 1.0, []),
        (0.0, 0.9, [RHO_ZERO]),
        (0.1, 0.1, [SQUARES, RATIO]),  # as printed in the paper
        (0.3, 0.35, [SQUARES]),  # as in the authors' scripts
        (0.3, 0.5, [SQUARES]),
        (0.3, 0.0, [ZERO, SQUARES, RATIO]),
        (0.0, 0.0, [RHO_ZERO, ZERO, SQUARES, RATIO]),
        (0.9, 0.9, [RATIO]),
        (0.9, 0.6, [RATIO]),
        (0.5, 1.1, [SUM]),
        (1.1, 1.2, [RHO_SUM, SUM]),
        (1.2, 0.3, [RHO_SUM, SQUARES, RATIO]),
    ],
)
def test_exactly_the_broken_conditions_are_named(
    rho: float, gamma: float, broken: list[str]
) -> None:
    found = broken_conditions(Schedule(1.0, rho), Schedule(1.0, gamma))
    assert [text.split(" needs ")[0] for text in found] == broken
    assert all(f"rho.alpha = {rho:g}" in text for text in found)
    assert all(f"gamma.alpha = {gamma:g}" in text for text in found)


@pytest.mark.parametrize("a", [0.0, -1.0, 1.01, math.inf, math.nan])
def test_a_bad_size_is_named(a: float) -> None:
    with pytest.raises(UserError, match=r"rho\.a = .*\(0, 1\]"):
        power(a, 0.5, name="rho")


def test_the_most_may_be_raised() -> None:
    assert float(power(3.0, 0.0, most=10.0)(5)) == 3.0


def test_a_growing_step_is_refused() -> None:
    with pytest.raises(UserError, match=r"gamma\.alpha = -0\.1"):
        power(1.0, -0.1, name="gamma")


def test_a_warm_start_is_a_plain_mean() -> None:
    step = Schedule(0.15, warm=True)
    assert [float(step(t)) for t in (1, 2, 4, 6, 7, 900)] == pytest.approx(
        [1, 1 / 2, 1 / 4, 1 / 6, 0.15, 0.15], rel=1e-6
    )


def test_it_rises_and_cools() -> None:
    step = Schedule(0.1, rise=20, cool=0.8, horizon=1000)
    assert [float(step(t)) for t in (1, 10, 20, 200, 600, 1000, 1001)] == pytest.approx(
        [0.005, 0.05, 0.1, 0.1, 0.05, 0.0, 0.0], rel=1e-5, abs=1e-9
    )
    both = Schedule(0.1, 0.5, rise=4, cool=1.0, horizon=10)
    assert float(both(2)) == pytest.approx(0.1 / math.sqrt(2) * 0.5 * 0.8, rel=1e-6)


def test_a_schedule_that_cools_is_not_judged_by_the_theorems() -> None:
    rho, gamma = Schedule(0.15, warm=True), Schedule(0.1, rise=20)
    assert len(broken_conditions(rho, gamma)) == 4
    assert broken_conditions(rho, gamma._replace(cool=0.8, horizon=100)) == []
