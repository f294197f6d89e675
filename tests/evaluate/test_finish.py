"""The last steps reach a limit from a point that noise has left off the steep directions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from fedssca.evaluate.certificate import BestPoints
from fedssca.evaluate.finish import finish


class LeastSquares:
    """Half the mean squared error of all rows, and those of two groups that are limited."""

    def __init__(self, limit: float | None, rows: int = 400, width: int = 40) -> None:
        draw = np.random.default_rng(0)
        self.x = draw.standard_normal((rows, width)) * np.geomspace(3, 0.3, width)
        self.y = self.x @ draw.standard_normal(width)
        self.y = self.y + draw.standard_normal(rows)
        self.groups = [] if limit is None else [np.arange(rows) < 150, np.arange(rows) >= 150]
        self.limit = limit or 0.0

    def values(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """F_0, and 20 (mean squared error - limit) of each group."""
        squares = (self.x @ w - self.y) ** 2
        return squares.mean() / 2, np.array(
            [20 * (squares[own].mean() - self.limit) for own in self.groups]
        )

    def row(self, w: Any) -> dict[str, Any]:
        """The values as a row of metrics."""
        objective, limited = self.values(np.asarray(w, float))
        return {"objective": objective, "constraints": list(limited), "round": 9}

    def gradients(self, w: Any) -> np.ndarray:
        """The gradients of F_0..F_M."""
        error = self.x @ np.asarray(w, float) - self.y
        own = [40 * self.x[g].T @ error[g] / g.sum() for g in self.groups]
        return np.stack([self.x.T @ error / len(error), *own])


def started(problem: LeastSquares) -> np.ndarray:
    """Where mini-batches would end: hardly moved along flat directions, noise along steep ones."""
    steep = np.random.default_rng(1).standard_normal(40) * np.geomspace(0.05, 0.01, 40)
    whole = np.linalg.lstsq(problem.x, problem.y, rcond=None)[0]
    return np.asarray(whole - 0.1 * whole * (np.arange(40) > 20) + steep)


def test_limits_are_reached_along_flat_directions() -> None:
    problem = LeastSquares(limit=0.9)
    w, points = started(problem), BestPoints()
    begin = problem.row(w)
    assert max(begin["constraints"]) > 0

    finish(problem, points, jnp.asarray(w), begin, steps=20)  # type: ignore[arg-type]

    best = minimize(
        lambda z: problem.values(z)[0],
        w,
        jac=lambda z: problem.gradients(z)[0],
        constraints={"type": "ineq", "fun": lambda z: -problem.values(z)[1],
                     "jac": lambda z: -problem.gradients(z)[1:]},
        method="SLSQP",
    )  # fmt: skip
    assert points.best is not None
    assert points.best[1]["objective"] <= 1.01 * best.fun


def test_without_limits_they_go_on_to_the_optimum() -> None:
    problem, points = LeastSquares(limit=None), BestPoints()
    w = started(problem)

    finish(problem, points, jnp.asarray(w), problem.row(w), steps=40)  # type: ignore[arg-type]

    least = problem.values(np.linalg.lstsq(problem.x, problem.y, rcond=None)[0])[0]
    assert points.best is not None
    assert points.best[1]["objective"] <= 1.01 * least


class NoneMissed:
    """Logistic regression in which no positive row may be predicted negative: a count."""

    def __init__(self, rows: int = 300, width: int = 8) -> None:
        draw = np.random.default_rng(3)
        self.x = np.c_[np.ones(rows), draw.standard_normal((rows, width))]
        z = self.x @ np.r_[-0.5, 2 * draw.standard_normal(width)]
        self.y = (z + draw.standard_normal(rows) > 0).astype(float)
        self.positive = self.x[self.y == 1]

    def objective(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """The cross-entropy with a little regularisation, and its gradient."""
        z = self.x @ w
        value = np.mean(np.logaddexp(0, z) - self.y * z) + 1e-3 * w @ w
        return value, self.x.T @ (1 / (1 + np.exp(-z)) - self.y) / len(z) + 2e-3 * w

    def row(self, w: Any) -> dict[str, Any]:
        """The share of missed rows moves in steps of one row."""
        w = np.asarray(w, float)
        missed = float(np.mean(self.positive @ w <= 0))
        return {"objective": self.objective(w)[0], "constraints": [missed], "round": 9}

    def gradients(self, w: Any) -> np.ndarray:
        """The gradient of the count is that of log(1 + log(1 + exp(-16 z)))."""
        w = np.asarray(w, float)
        x = -16 * self.positive @ w
        slope = 1 / (1 + np.exp(-x)) / (1 + np.logaddexp(0, x)) / np.log1p(np.log(2))
        return np.stack([self.objective(w)[1], -16 * slope @ self.positive / len(x)])


def test_a_count_does_not_stop_them() -> None:
    problem, points = NoneMissed(), BestPoints()
    free = minimize(problem.objective, np.zeros(9), jac=True)
    begin = problem.row(free.x)
    assert begin["constraints"][0] > 0

    finish(problem, points, jnp.asarray(free.x), begin, steps=60, rates=[0])  # type: ignore[arg-type]

    held = {"type": "ineq", "fun": lambda w: problem.positive @ w - 1e-6,
            "jac": lambda w: problem.positive}  # fmt: skip
    best = minimize(problem.objective, free.x, jac=True, constraints=held, method="SLSQP")
    assert best.success
    assert points.best is not None
    assert points.best[1]["constraints"] == [0.0]
    assert points.best[1]["objective"] <= 1.05 * best.fun
    assert free.fun < 0.8 * best.fun


def test_a_large_model_gets_there_with_fewer_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedssca.evaluate.finish.LARGE", 0)
    test_limits_are_reached_along_flat_directions()
