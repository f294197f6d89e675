"""What is said of limits that no point kept: how far they are, and what looks attainable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.evaluate.advice import explain, lowest
from fedssca.evaluate.certificate import BestPoints
from fedssca.problem.custom import custom_problem
from fedssca.problem.problem import Problem


def toy(*limits: Any) -> Problem:
    """Limits on the means of two columns."""
    names = ["error", "size"][: len(limits)]
    return custom_problem(
        lambda w, batch: w[0] * batch["x"].T[: 1 + len(limits)],
        jnp.ones(1),
        limits=limits,
        names=names,
    )


def told(p: Problem, *curves: Callable[[float], float], rounds: int = 400) -> list[str]:
    """What is said after a run whose constraints (limits subtracted) went along these curves."""
    rows = [
        {"round": t, "objective": 1.0, "constraints": [curve(t) for curve in curves]}
        for t in range(0, rounds + 1, 10)
    ]
    kept = BestPoints()
    for row in rows:
        kept.see(jnp.zeros(1), row)
    assert kept.best is None
    return explain(p, rows, kept.least[1])


def test_a_limit_below_what_is_attainable() -> None:
    (line,) = told(toy(0.2), lambda t: 0.35 + 2 * np.exp(-t / 5))
    assert line.startswith("error: 0.55 is over its limit 0.2 by 0.35")
    assert line.endswith("it has levelled off: 0.55 looks attainable here")


def test_a_run_that_is_too_short() -> None:
    (line,) = told(toy(0.2), lambda t: 0.1 * np.log(900 / max(t, 1)))  # meets it at 900
    assert line.startswith("error: 0.2811 is over its limit 0.2 by 0.08109")
    assert "it falls slowly: between 0.16" in line  # the limit lies in the range that is given


def test_a_run_that_meets_its_limit_soon() -> None:
    (line,) = told(toy(0.2), lambda t: 60 / max(t, 1) - 0.12)  # meets it at 500
    assert "it is still falling: about" in line


def test_a_slow_fall_is_not_stretched_beyond_ten_times_the_run() -> None:
    (line,) = told(toy(0.2), lambda t: 1 + 0.01 * np.log(400 / max(t, 1)))
    assert "it falls slowly: between 1.18" in line
    assert "and 1.2 looks attainable in ten times the rounds" in line


def test_limits_that_fight() -> None:
    lines = told(toy(0.2, 1.0), lambda t: 0.3 - t / 400, lambda t: t / 400 - 0.1)
    assert [line.split(":")[0] for line in lines[:2]] == ["error", "size"]
    assert all("never together with the other limits" in line for line in lines[:2])
    assert lines[2] == "the limits conflict with each other (error, size): relax one of them"


@pytest.mark.parametrize("rounds", [0, 10, 30])
def test_too_few_rounds_to_say(rounds: int) -> None:
    (line,) = told(toy(0.2), lambda t: 1.0 - t / 1000, rounds=rounds)
    assert "too few rounds were evaluated to say what is attainable: train longer" in line


def test_a_limit_from_below_is_said_in_its_own_direction() -> None:
    (line,) = told(toy((0.9, None)), lambda t: 0.3 + 2 * np.exp(-t / 5))
    assert line.startswith("error: 0.6 is below its limit 0.9 by 0.3")
    assert line.endswith("it has levelled off: 0.6 looks attainable here")
    (line,) = told(toy((0.9, None)), lambda t: 60 / max(t, 1) - 0.12)
    assert "it is still rising: about" in line


def test_a_precision_is_said_as_it_was_measured() -> None:
    """Its constraint (limit FP - (1 - limit) TP) / N is no distance of the precision."""
    labels = np.array([0, 1, 0, 1])
    p = fedssca.classifier(fedssca.linear(2, 2), fedssca.precision_at_least(0.9, labels))
    row = {"round": 0, "objective": 1.0, "constraints": [0.05], "train_precision": 0.8}
    (line,) = explain(p, [row | {"round": t} for t in range(0, 100, 10)], row)
    assert line == "precision of class 1: 0.8 is below its limit 0.9 by 0.1; it has levelled off"


def test_a_limit_at_the_bottom_of_a_convex_function_is_not_promised() -> None:
    """Noise that looks like a fall: the gradient says that nothing below 0.51 is near."""
    p = toy(0.5)
    rows = [
        {"round": t, "objective": 1.0, "constraints": [0.01 + 30 / (t + 1) - 0.03]}
        for t in range(0, 401, 10)
    ]
    least = rows[-1] | {"constraints": [0.02]}
    assert "about 1" in explain(p, rows, least)[0]
    floor = lowest(p, [0.02], np.array([[1.0], [0.001]]), 10.0)
    np.testing.assert_allclose(floor, [0.01])
    (line,) = explain(p, rows, least, floor)
    assert "it falls slowly: between 0.51 and 0.52 looks attainable" in line


def test_no_rate_below_zero_is_said_to_be_attainable() -> None:
    p = fedssca.classifier(
        fedssca.linear(2, 2), fedssca.false_negative_rate_at_most(0.05, np.array([0, 1, 1, 1]))
    )
    rows = [
        {"round": t, "objective": 1.0, "constraints": [0.05 + 100 / max(t, 1)]}
        for t in range(0, 401, 10)
    ]
    assert lowest(p, [0.2], np.ones((2, 1)), 1.0)[0] == -np.inf
    assert "between 0 and 0.35 looks attainable" in explain(p, rows, rows[-1])[0]
