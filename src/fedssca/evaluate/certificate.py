"""Does the model keep its limits? Which model to return, the certificate, and notes on failures.

Evaluated rounds are checked on the full training data, and the best feasible point is kept. At the
end a line search, which needs forward passes only, improves the objective within the limits: from
the best feasible point towards the last one, and from there along the negative gradient of the
objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedssca.evaluate.evaluator import Evaluator
from fedssca.evaluate.kkt import kkt_residual
from fedssca.problem.problem import Array, Problem

__all__ = ["BestPoints", "certify", "early", "explain", "feasible", "refine", "restore"]

Row = dict[str, Any]
TRIALS = 10
"""Forward passes of one line search."""


@dataclass
class BestPoints:
    """The best and the last feasible point among the evaluated ones."""

    best: tuple[Array, Row] | None = None
    last: tuple[Array, Row] | None = None
    least: tuple[Array, Row] | None = None
    """The point with the smallest worst violation: what to return when nothing was feasible."""

    def see(self, w: Array, row: Row) -> None:
        """Take note of an evaluated point."""
        values = row["constraints"]
        if feasible(row):
            self.last = (w, row)
            if self.best is None or row["objective"] < self.best[1]["objective"]:
                self.best = (w, row)
        elif self.least is None or max(values) < max(self.least[1]["constraints"]):
            self.least = (w, row)


def early(row: Row, rounds: int) -> bool:
    """The point is from the first tenth of the run."""
    return int(row["round"]) < rounds / 10


def feasible(row: Row) -> bool:
    """Every F_m <= 0 on the full training data."""
    return all(value <= 0 for value in row["constraints"])


def refine(evaluator: Evaluator, points: BestPoints, last: Array) -> tuple[Array, Row, int]:
    """The best feasible point reachable by line searches; its row; and the forward passes spent.

    Only values are exchanged: every candidate is a point between two that the clients know.
    """
    passes = 0

    def search(start: tuple[Array, Row], end: Array) -> tuple[Array, Row]:
        """The feasible point with the lowest objective found by bisection from `start` to `end`."""
        nonlocal passes
        found, low, high = start, 0.0, 1.0
        for _ in range(TRIALS):
            middle = (low + high) / 2
            w = start[0] + middle * (end - start[0])
            row = evaluator.row(w) | {"round": start[1]["round"]}
            passes += 1
            if feasible(row) and row["objective"] < found[1]["objective"]:
                found, low = (w, row), middle
            else:
                high = middle
        return found

    if points.best is None:
        raise ValueError("no feasible point to start from")
    found = search(points.best, last)
    slope = jnp.asarray(evaluator.gradients(found[0])[0], found[0].dtype)
    if (length := float(jnp.linalg.norm(slope))) > 0:
        reach = 0.2 * float(jnp.linalg.norm(found[0])) / length
        found = search(found, found[0] - reach * slope)
    return *found, passes


def restore(evaluator: Evaluator, points: BestPoints, last: Array, row: Row) -> int:
    """Repair a small violation by one step of at most 2 % of |w| down the broken constraints.

    If that is not enough, or if only an early, hardly trained point was feasible, the step may be
    ten times as long. Returns the number of forward passes; feasible points are added to `points`.
    """
    slopes = evaluator.gradients(last)[1:]
    broken = np.array(row["constraints"]) > 0
    lengths = np.maximum(np.linalg.norm(slopes, axis=1), 1e-30)
    down = -(broken / lengths) @ slopes
    if not np.linalg.norm(down) > 0:
        return 0
    passes = 0
    for most in (0.02, 0.2) if points.best is None else (0.2,):
        reach = most * float(jnp.linalg.norm(last)) / np.linalg.norm(down)
        low, high, share = 0.0, None, 1.0
        for _ in range(TRIALS):
            w = last + jnp.asarray(share * reach * down, last.dtype)
            there = evaluator.row(w) | {"round": row["round"]}
            points.see(w, there)
            if feasible(there):
                high = share
            elif high is not None:
                low = share
            # First shorter steps, because far out the value may rise again; then the shortest one.
            share = share / 2 if high is None else (low + high) / 2
        passes += TRIALS
        if high is not None:
            break
    return passes


def certify(
    problem: Problem,
    evaluator: Evaluator,
    w: Array,
    row: Row,
    slack: Sequence[float],
    multipliers: Sequence[float],
) -> Row:
    """Value, limit, margin and price of every constraint at w, and the KKT residual.

    The multiplier is the price of a limit: relaxing it by 0.01 would lower the objective by about
    0.01 times that. It is the algorithm's own; where that keeps none, the one that fits the
    gradients at w best.
    """
    values = np.array(row["constraints"], float)
    residual, fitted = kkt_residual(evaluator.gradients(w), values)
    prices = np.asarray(multipliers) if np.any(multipliers) else fitted
    entries = []
    for m, name in enumerate(problem.names):
        entries.append(
            {
                "name": name,
                "value": float(values[m] + problem.limits[m]),
                "limit": float(problem.limits[m]),
                "margin": float(-values[m]),
                "feasible": bool(values[m] <= 0),
                "multiplier": float(prices[m]),
                "relaxing_by_0.01_buys": float(0.01 * prices[m]),
                "slack": float(slack[m]),
                **{
                    f"{part}_rate": row[f"{part}_{name}"]
                    for part in ("train", "test")
                    if f"{part}_{name}" in row
                },
            }
        )
    return {"feasible": feasible(row), "kkt_residual": residual, "constraints": entries}


def explain(problem: Problem, rows: Sequence[Row], least: Row) -> list[str]:
    """Why no point was feasible: which limit, how far, what looks attainable, what to do."""
    history = np.array([row["constraints"] for row in rows], float)
    rounds = np.array([row["round"] for row in rows], float)
    broken = [m for m in range(problem.constraints) if least["constraints"][m] > 0]
    alone = [m for m in broken if history[:, m].min() <= 0]
    lines = []
    for m in broken:
        limit, now = problem.limits[m], least["constraints"][m]
        text = f"{problem.names[m]}: {now + limit:.4g} is over its limit {limit:.4g} by {now:.4g}"
        floor, needed = _outlook(rounds, history[:, m])
        if m in alone:
            text += "; it was kept at times, but never together with the other limits"
        elif floor is None:
            text += "; too few rounds were evaluated to say what is attainable: train longer"
        elif needed is not None:
            text += f"; it is still falling: about {needed:,} rounds or more would do"
        elif floor < history[:, m].min():
            text += (
                f"; it falls slowly: {floor + limit:.4g} looks attainable in ten times the rounds"
            )
        else:
            text += f"; it has levelled off: {floor + limit:.4g} looks attainable here"
        lines.append(text)
    if alone and problem.constraints > 1:
        names = ", ".join(problem.names)
        lines.append(f"the limits pull against each other ({names}): relax one of them")
    return lines


def _outlook(rounds: np.ndarray, values: np.ndarray) -> tuple[float | None, int | None]:
    """The level that seems attainable, and the rounds after which the limit is met (None: never).

    A straight line in log t through the second half of the curve, trusted up to ten times its
    length: learning curves bend, so more would be a guess. Both None: too few points for a line.
    """
    late = rounds >= max(rounds[-1] / 2, 1)
    if late.sum() < 3:
        return None, None
    floor = float(values[late].min())
    slope, offset = np.polyfit(np.log(rounds[late]), values[late], 1)
    if slope >= 0:
        return floor, None
    meets = float(np.exp(min(-offset / slope, 50.0)))
    attainable = min(floor, float(offset + slope * np.log(10 * rounds[-1])))
    if meets > 10 * rounds[-1]:
        return attainable, None
    return attainable, int(np.ceil(max(meets, rounds[-1]) * 1.2 / 100) * 100)
