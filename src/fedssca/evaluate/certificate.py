"""Does the model keep its limits? Which model to return, the proof, and what is not finished.

Evaluated rounds are judged on the full training data. The best feasible point seen is kept; at the
end a forward-only search along two lines spends what room is left (or wins back what is missing):
from the best feasible point towards the last one, and from there down the objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedssca.evaluate.evaluator import Evaluator
from fedssca.evaluate.kkt import CONVERGED, SETTLED, Finished, judge_prices, more_rounds, optimality
from fedssca.problem.problem import Array, Problem
from fedssca.problem.worst import balanced

__all__ = [
    "BestPoints",
    "certify",
    "certify_noised",
    "early",
    "feasible",
    "no_better_than_constant",
    "refine",
    "restore",
    "solution_length",
    "unfinished",
]

Row = dict[str, Any]
NOTHING = Finished(0)
TRIALS = 10
"""Forward passes of one line search."""


@dataclass
class BestPoints:
    """Remembers the best and the last feasible point among the evaluated ones."""

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
    """A near miss: one step of at most 2 % of |w| down the broken constraints, by forward passes.

    If that does not do, or only an early point was feasible, hardly trained, the step may be ten
    times as long. Returns the passes spent; a point that is feasible is shown to the points.
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
            # First shorter and shorter, far out the line may rise again; then as short as will do.
            share = share / 2 if high is None else (low + high) / 2
        passes += TRIALS
        if high is not None:
            break
    return passes


def solution_length(problem: Problem, w: Array) -> float:
    """l = max(|w|, |w - w(1)|)."""
    return max(float(jnp.linalg.norm(w)), float(jnp.linalg.norm(w - problem.start)))


def certify(
    problem: Problem,
    evaluator: Evaluator,
    w: Array,
    row: Row,
    slack: Sequence[float],
    multipliers: Sequence[float],
    found: Finished = NOTHING,
    *,
    rounds: int = 0,
    scale: float | None = None,
    grain: np.ndarray | float = 0.0,
) -> Row:
    """Value, limit, margin and price of every constraint at w, the KKT residual, and a verdict.

    The multiplier is the price of a limit: relaxing it by 0.01 would lower the objective by about
    0.01 times that. It is what fits the gradients at w best where that fits well, else the method's
    own if the two agree, else None: `prices` then says why. `found` is what the last steps on all
    rows found. `converged` means feasible, with a small residual, and with an objective that the
    last steps hardly lowered. Where it is not, `more_rounds` is a rough number of rounds that would
    do after the `rounds` of this run. `scale` is that of the objective, |F_0| if it is not given;
    `grain` is that of the constraints that count rows, see `optimality`.
    """
    values = np.array(row["constraints"], float)
    scale = abs(float(row["objective"])) if scale is None else scale
    slopes = balanced(problem, evaluator.gradients(w))
    here = optimality(slopes, scale, values, solution_length(problem, w), grain)
    titles = [bound.title or bound.quantity for bound in problem.bounds]
    prices, why = judge_prices(here, multipliers, found.multipliers, titles)
    entries = []
    for m, name in enumerate(problem.names):
        price = prices[m]
        entries.append(
            {
                "name": name,
                "title": titles[m] if titles else name,
                "value": float(values[m] + problem.limits[m]),
                "limit": float(problem.limits[m]),
                "margin": float(0 - values[m]),
                "feasible": bool(values[m] <= 0),
                "active": bool(here.active[m]),
                "multiplier": price,
                "fitted": float(here.fitted[m]),
                "method": float(multipliers[m]),
                "relaxing_by_0.01_buys": None if price is None else 0.01 * price,
                "slack": float(slack[m]),
                **_rates(row, name),
            }
        )
    settled = found.gain is None or found.gain <= SETTLED
    converged = feasible(row) and here.residual <= CONVERGED and settled
    return {
        "feasible": feasible(row),
        "kkt_residual": here.residual,
        "converged": converged,
        "more_rounds": 0 if converged else more_rounds(here.residual, rounds),
        "prices": why,
        "constraints": entries,
    }


def certify_noised(
    problem: Problem, row: Row, slack: Sequence[float], multipliers: Sequence[float]
) -> Row:
    """What can be said of a model whose values carry privacy noise: values, limits and margins.

    There is no KKT residual, and there are no prices: both need exact gradients over all rows.
    """
    titles = [bound.title or bound.quantity for bound in problem.bounds]
    entries = [
        {
            "name": name,
            "title": titles[m] if titles else name,
            "value": float(value + problem.limits[m]),
            "limit": float(problem.limits[m]),
            "margin": float(0 - value),
            "feasible": bool(value <= 0),
            "active": bool(multipliers[m] > 0),
            "multiplier": None,
            "fitted": None,
            "method": float(multipliers[m]),
            "relaxing_by_0.01_buys": None,
            "slack": float(slack[m]),
            **_rates(row, name),
        }
        for m, (name, value) in enumerate(zip(problem.names, row["constraints"], strict=True))
    ]
    return {
        "feasible": feasible(row),
        "kkt_residual": None,
        "converged": False,
        "more_rounds": 0,
        "prices": "",
        "noised": True,
        "constraints": entries,
    }


def _rates(row: Row, name: str) -> Row:
    """The reported rate that belongs to a constraint, on training and on held-out rows."""
    return {
        f"{part}_rate": row[f"{part}_{name}"]
        for part in ("train", "test")
        if f"{part}_{name}" in row
    }


def unfinished(certificate: Row, rows: Sequence[Row]) -> list[str]:
    """What is to be said of a model that is feasible but not finished, and of doubtful prices."""
    if not certificate["feasible"] or certificate["kkt_residual"] is None:
        return []
    lines = [certificate["prices"]] if certificate["prices"] else []
    if certificate["converged"] or len(rows) < 2:
        return lines
    return [
        f"training is not finished ({_why(certificate['kkt_residual'])}): about "
        f"{certificate['more_rounds']:,} more rounds",
        *lines,
    ]


def _why(residual: float) -> str:
    if residual > CONVERGED:
        return f"KKT residual {residual:.2g}, finished below {CONVERGED:g}"
    return "its last steps still lowered the objective"


def no_better_than_constant(constant: float | None, row: Row) -> list[str]:
    """A classifier whose loss is that of predicting the classes' shares has learnt nothing."""
    if constant is None or "train_cost" not in row or row["train_cost"] < 0.99 * constant:
        return []
    return [
        f"the model's training loss {row['train_cost']:.4g} is no better than that of a constant "
        f"prediction, {constant:.4g}"
    ]
