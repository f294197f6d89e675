"""The last step of a run with limits on rates: thresholds set on the counts of all training rows.

A rate counts rows, so it moves in steps, and no gradient brings it exactly to its limit. The biases
of the scores are the thresholds of the decision. Along a line of biases, w + s e,

    minimise F_0(w + s e)    subject to    F_m(w + s e) <= 0,    m = 1..M,

is a problem in one number s, in which F_0 (cross-entropy or |w|^2, see `problem/scores.py`) is
convex. `search` solves it with values only, so everything that an evaluation exchanges is sums
over rows: the step is the same in a simulation, for parties with columns, in a deployment and with
secure sums. A unit of s is a unit of the scores, on whose scale the cross-entropy is defined.

The same search then follows the gradient of a limit, in which all of w moves. There F_0 is convex
for linear models; for networks the bounds that it takes from convexity are a guess.
"""

from __future__ import annotations

from bisect import insort
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.evaluate.certificate import BestPoints, feasible
from fedssca.evaluate.evaluator import Evaluator
from fedssca.problem.problem import Array, Problem

__all__ = ["set_thresholds"]

Row = dict[str, Any]
PASSES = 40
"""The largest number of evaluations of one line."""
LINES = 4
"""The largest number of lines from one point."""
TOTAL = 160
"""The largest number of evaluations of all lines."""
FIRST = 1 / 32
"""The first steps along a line, in units of the scores; further ones double."""
FARTHEST = 32.0
SHORTEST = 1e-6
"""Intervals of this width are not halved; scores in single precision cannot tell more."""
GAIN = 1e-4
"""The relative improvement of the objective that is worth another evaluation."""


def set_thresholds(
    problem: Problem,
    evaluator: Evaluator,
    points: BestPoints,
    w: Array,
    row: Row,
    positions: np.ndarray | None,
) -> int:
    """Move the biases at `positions` so that limits on rates are kept at the least objective.

    It begins at the best feasible point (if there is none: at the one that breaks its limits
    least) and at w, whose evaluation is `row`. Afterwards, and alone if there are no biases, all of
    w moves along the gradient of the limit that is nearest. Every point that is evaluated is added
    to `points`. Returns the number of passes over all rows; without limits on counts it is 0.
    """
    if not problem.stepwise:
        return 0
    starts = [point for point in (points.best or points.least, (w, row)) if point is not None]
    if len(starts) == 2 and np.array_equal(starts[0][0], starts[1][0]):
        starts.pop()
    slopes = [_slopes(problem, evaluator, start) for start in starts]
    groups = [
        (start, _bias_lines(problem, own, positions))
        for start, own in zip(starts, slopes, strict=True)
        if positions is not None
    ] + [(start, _gradient_line(start, own)) for start, own in zip(starts, slopes, strict=True)]
    passes = len(starts)
    for start, lines in groups:
        at = start
        for line in lines:
            if passes + PASSES > TOTAL:
                return passes
            found, used = search(evaluator, points, at, line)
            passes += used
            # Where limits are still broken, the next line goes on from there.
            at = start if feasible(found[1]) else found
    return passes


def _slopes(problem: Problem, evaluator: Evaluator, start: tuple[Array, Row]) -> np.ndarray:
    """The gradients of the two limits on rates that are broken most, or are nearest to it."""
    w, row = start
    worst = sorted(problem.stepwise, key=lambda m: -float(row["constraints"][m]))[:2]
    slopes = evaluator.gradients(w)[1:][worst]
    return np.asarray(slopes[np.isfinite(slopes).all(axis=1)])


def _bias_lines(problem: Problem, slopes: np.ndarray, positions: np.ndarray) -> list[np.ndarray]:
    """The directions in which biases are moved.

    A single bias can be moved in one way only. Several move along the gradients, and one by one,
    those first that change the limits most. Directions that differ only by a common shift of all
    scores are the same.
    """
    own = slopes[:, positions]
    sizes = np.abs(own).max(axis=1, keepdims=True)
    own = own[sizes[:, 0] > 0] / sizes[sizes[:, 0] > 0]
    order = np.argsort(-np.abs(own).sum(axis=0), kind="stable")
    moves = [*own, *np.eye(len(positions))[order]]
    if len(positions) > 1 and np.abs(own.sum(axis=1)).max(initial=0.0) < 1e-3:
        moves = [move - move.mean() for move in moves]
    units: list[np.ndarray] = []
    for move in moves:
        unit = move / np.linalg.norm(move)
        if all(abs(unit @ other) < 0.99 for other in units):
            units.append(unit)
    lines = np.zeros((min(len(units), LINES), problem.dimension))
    for line, unit in zip(lines, units, strict=False):
        line[positions] = unit / np.abs(unit).max()
    return [*lines]


def _gradient_line(start: tuple[Array, Row], slopes: np.ndarray) -> list[np.ndarray]:
    """The gradient of the nearest limit, of the length 0.1 |w|; none where it is 0."""
    unit = 0.1 * float(np.linalg.norm(start[0]))
    lengths = [float(np.linalg.norm(slope)) for slope in slopes]
    return [slope * (unit / size) for slope, size in zip(slopes, lengths, strict=True) if size][:1]


class Sample(NamedTuple):
    """A point of a line that was evaluated."""

    s: float
    objective: float
    values: np.ndarray
    """F_1..F_M."""
    point: tuple[Array, Row]

    @property
    def violation(self) -> float:
        """The sum of the violations of all limits; 0 where all are kept."""
        return float(np.maximum(self.values, 0).sum())


def search(
    evaluator: Evaluator, points: BestPoints, start: tuple[Array, Row], line: np.ndarray
) -> tuple[tuple[Array, Row], int]:
    """The best point of the line through `start`, and the number of evaluations.

    First s goes outwards on both sides, in doubling steps, until nothing better can follow: by
    convexity that is so where F_0 rises and the limits are kept, or F_0 is above the best known.
    Then intervals are halved that may hold a better point: no limit is broken at both of their
    ends, and the convex F_0 may be lower in them than the best known by more than `GAIN`.
    """
    origin, first = start
    w, taken = np.asarray(origin, float), 0
    samples = [_sample(0.0, origin, first)]

    def evaluate(s: float) -> Sample:
        nonlocal taken
        taken += 1
        there = jnp.asarray(np.asarray(w + s * line, origin.dtype))
        row = evaluator.row(there) | {"round": first["round"]}
        sample = _sample(s, there, row)
        if np.isfinite([row["objective"], *row["constraints"]]).all():
            points.see(there, row)
            insort(samples, sample, key=lambda each: each.s)
        return sample

    def best() -> float:
        return np.inf if points.best is None else float(points.best[1]["objective"])

    sides, step = {1.0: samples[0], -1.0: samples[0]}, FIRST
    while sides and step <= FARTHEST:
        for side, inner in list(sides.items()):
            outer = sides[side] = evaluate(side * step)
            above = outer.objective >= best() or not outer.violation > 0
            if not outer.objective < inner.objective and above:
                del sides[side]
        step *= 2
    while taken < PASSES and (middle := _promising(samples, best())) is not None:
        evaluate(middle)
    return min(samples, key=lambda sample: (sample.violation, sample.objective)).point, taken


def _sample(s: float, w: Array, row: Row) -> Sample:
    return Sample(s, float(row["objective"]), np.asarray(row["constraints"], float), (w, row))


def _promising(samples: list[Sample], best: float) -> float | None:
    """The middle of the interval to evaluate next; None if no interval is worth it.

    Intervals in which F_0 cannot be lower than the best known by `GAIN` are left out. First come
    those that no limit rules out: the limit is broken at one end at most. Then come those with
    a limit that is broken at both ends, but is not monotone along the line (a gap between groups),
    so that it may be kept in between: the wider, the lower F_0 and the smaller the violation, the
    sooner.
    """
    values = np.array([sample.values for sample in samples])
    changes = np.diff(values, axis=0)
    monotone = (changes >= 0).all(axis=0) | (changes <= 0).all(axis=0)
    enough = best - GAIN * abs(best) if np.isfinite(best) else np.inf
    open_, perhaps = {}, {}
    for i, (a, b) in enumerate(pairwise(samples)):
        bound, middle = _lower_bound(samples, i), (a.s + b.s) / 2
        both = ~(a.values <= 0) & ~(b.values <= 0)
        if b.s - a.s <= SHORTEST or bound >= enough:
            continue
        if not both.any():
            open_[middle] = bound
        elif not (both & monotone).any():
            gain = best - bound if np.isfinite(best) else 1.0
            perhaps[middle] = (b.s - a.s) ** 0.5 * gain / min(a.violation, b.violation)
    if open_:
        return min(open_, key=lambda middle: open_[middle])
    return max(perhaps, key=lambda middle: perhaps[middle], default=None)


def _lower_bound(samples: list[Sample], i: int) -> float:
    """A lower bound of a convex function between samples i and i + 1, from those beside them.

    The lines through samples (i - 1, i) and (i + 1, i + 2) lie below it there.
    """
    a, b = samples[i], samples[i + 1]
    width = b.s - a.s
    ends = np.array([[-np.inf, -np.inf], [-np.inf, -np.inf]])  # (line, end of the interval)
    if i > 0:
        before = samples[i - 1]
        slope = (a.objective - before.objective) / (a.s - before.s)
        ends[0] = a.objective, a.objective + slope * width
    if i + 2 < len(samples):
        after = samples[i + 2]
        slope = (after.objective - b.objective) / (after.s - b.s)
        ends[1] = b.objective - slope * width, b.objective
    if not np.isfinite(ends).all():
        return float(ends.max(axis=0).min())
    rise = ends[:, 1] - ends[:, 0]
    cross = (
        np.clip((ends[0, 0] - ends[1, 0]) / (rise[1] - rise[0]), 0, 1) if rise[0] < rise[1] else 0
    )
    shares = np.array([0.0, cross, 1.0])
    return float((ends[:, :1] + rise[:, None] * shares).max(axis=0).min())
