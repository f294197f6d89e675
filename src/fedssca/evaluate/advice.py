"""What to say when no point kept all limits: which one, how far, what looks attainable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedssca.problem.limits import Bound
from fedssca.problem.problem import Problem

__all__ = ["explain", "lowest"]

Row = dict[str, Any]


def lowest(
    problem: Problem, values: Sequence[float], gradients: np.ndarray, length: float
) -> np.ndarray:
    """F_m - l |grad F_m|, below which a convex F_m cannot fall within the distance l of this point.

    With l the length of the solution, a limit that stays broken at this value is out of reach.
    Nothing is known of counts, whose gradients are those of a smooth function in their place.
    """
    floor = np.asarray(values, float) - length * np.linalg.norm(gradients[1:], axis=1)
    floor[list(problem.stepwise)] = -np.inf
    return floor


def explain(
    problem: Problem, rows: Sequence[Row], least: Row, floor: np.ndarray | None = None
) -> list[str]:
    """Why no point was feasible: which limit, how far, what looks attainable, what to do.

    `floor` is what `lowest` says at the point of the row `least`.
    """
    history = np.array([row["constraints"] for row in rows], float)
    rounds = np.array([row["round"] for row in rows], float)
    broken = [m for m in range(problem.constraints) if least["constraints"][m] > 0]
    alone = [m for m in broken if history[:, m].min() <= 0]
    lines = []
    for m in broken:
        bound, now = problem.bounds[m], float(least["constraints"][m])
        if m in alone:
            more = "it was kept at times, but never together with the other limits"
        else:
            bottom = -np.inf if floor is None else min(float(floor[m]), now)
            if m in problem.stepwise:  # rates, or differences of two rates
                bottom = max(bottom, _value(bound, 0.0 if bound.high is not None else 1.0))
            more = _attainable(
                bound, now, _outlook(rounds, history[:, m], bottom), _exact(bound, least, now)
            )
        lines.append(f"{_how_far(bound, least, now)}; {more}")
    if alone and problem.constraints > 1:
        names = ", ".join(dict.fromkeys(bound.title or bound.quantity for bound in problem.bounds))
        lines.append(f"the limits conflict with each other ({names}): relax one of them")
    return lines


def _quantity(bound: Bound, f: float) -> float:
    """The bounded quantity where the constraint has the value F_m = f."""
    return f + bound.high if bound.high is not None else (bound.low or 0.0) - f


def _value(bound: Bound, quantity: float) -> float:
    """F_m where the bounded quantity has this value."""
    return quantity - bound.high if bound.high is not None else (bound.low or 0.0) - quantity


def _exact(bound: Bound, row: Row, f: float) -> bool:
    """F_m is the distance of the reported quantity from its limit; for a precision it is not."""
    reported = row.get(f"train_{bound.quantity}")
    return reported is None or abs(reported - _quantity(bound, f)) <= 1e-3 * max(1.0, abs(reported))


def _how_far(bound: Bound, row: Row, f: float) -> str:
    limit, side = (bound.low, "below") if bound.high is None else (bound.high, "over")
    value, by = _quantity(bound, f), f
    if not _exact(bound, row, f):
        value = float(row[f"train_{bound.quantity}"])
        by = abs(value - (limit or 0.0))
    title = bound.title or bound.quantity
    return f"{title}: {value:.4g} is {side} its limit {limit:.4g} by {by:.4g}"


def _attainable(
    bound: Bound, now: float, outlook: tuple[float, float, int | None] | None, exact: bool
) -> str:
    """What more rounds would bring."""
    moving, moves = ("rising", "rises") if bound.high is None else ("falling", "falls")
    if outlook is None:
        return "too few rounds were evaluated to say what is attainable: train longer"
    low, high, rounds = outlook
    if rounds is not None:
        return f"it is still {moving}: about {rounds:,} rounds or more would do"
    high = min(high, now)
    if high - low <= 0.005 * abs(now):
        said = f": {_quantity(bound, high):.4g} looks attainable here" if exact else ""
        return f"it has levelled off{said}"
    if not exact:
        return f"it {moves} slowly"
    first, second = sorted((_quantity(bound, low), _quantity(bound, high)))
    return (
        f"it {moves} slowly: between {first:.4g} and {second:.4g} looks attainable in ten times "
        "the rounds"
    )


def _outlook(
    rounds: np.ndarray, values: np.ndarray, floor: float
) -> tuple[float, float, int | None] | None:
    """The range of what seems attainable, and the rounds after which the limit is met, if any.

    Two curves, a + b / t and a + b / sqrt(t), through the second half of the measured one: learning
    curves lie between them. Nothing above the lowest value reached is promised, nothing below
    the floor, and nothing beyond ten times the length of the run. None: too few points.
    """
    late = rounds >= max(rounds[-1] / 2, 1)
    if late.sum() < 3:
        return None
    reached, ends, meets = float(values.min()), [], []
    for power in (1.0, 0.5):
        slope, level = np.polyfit(rounds[late] ** -power, values[late], 1)
        end = float(level + max(slope, 0) * (10 * rounds[-1]) ** -power)
        ends.append(min(max(end, floor), reached))
        if slope > 0 > level:
            meets.append(float((slope / -level) ** (1 / power)))
    slow = max(meets) if len(meets) == 2 else np.inf
    if floor > 0 or slow > 10 * rounds[-1]:
        return min(ends), reached, None
    return min(ends), reached, int(np.ceil(max(slow, rounds[-1]) * 1.2 / 100) * 100)
