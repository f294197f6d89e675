"""Training until it is done: stages of growing length, each going on where the last one ended.

A stage of T rounds is trained like a run of T rounds: the method is built for this horizon, and the
model that it would return is certified. Where that has not converged, the next stage goes on from
the same state to a horizon twice as long; steps are then longer again by themselves.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax

from fedssca.evaluate.certificate import unfinished
from fedssca.evaluate.kkt import objective_scale
from fedssca.run.result import Result
from fedssca.run.simulate import Checkpoint

__all__ = ["FIRST", "for_rounds", "until_converged"]

Row = dict[str, Any]
Train: TypeAlias = Callable[[int, Checkpoint | None, Sequence[Row]], Result]
"""Trains up to a number of rounds: from a checkpoint, whose rows are given too, or from w(1)."""

FIRST = 500
"""The rounds of the first stage."""
GAIN = 1e-3
"""A stage that lowers the objective by less than this share of itself was of no use."""


def until_converged(
    train: Train, most: int, begin: Checkpoint | None = None, earlier: Sequence[Row] = ()
) -> Result:
    """Stage after stage until the result has converged, for at most `most` rounds.

    Training also ends after a stage that gained next to nothing, and where it diverged. `begin` may
    lie within a stage, which is then completed exactly as in an uninterrupted run.
    """
    least = 1
    if begin is not None:
        least = int(begin.state.round) + 1
        if begin.ended:
            begin, result = _stage(train, least, begin, earlier)
            earlier, least = result.rows, least + 1
    for rounds in (each for each in _horizons(most) if each >= least):
        before = (math.inf, math.inf) if begin is None else begin.reached
        begin, result = _stage(train, rounds, begin, earlier)
        earlier = result.rows
        if result.converged or int(result.state.round) < rounds - 1:
            return result
        if why := _of_no_use(before, begin.reached, earlier):
            said = unfinished(result.certificate | {"prices": ""}, earlier)
            notes = [note for note in result.notes if note not in said]
            return dataclasses.replace(
                result, notes=[*notes, f"training ended after {rounds:,} rounds: {why}"]
            )
    end = f"training ended at max_rounds = {most:,} before it had converged"
    return dataclasses.replace(result, notes=[*result.notes, end])


def for_rounds(
    train: Train, rounds: int, begin: Checkpoint | None = None, earlier: Sequence[Row] = ()
) -> Result:
    """A run of `rounds` rounds; after the end of a shorter one the result is no worse than its."""
    if begin is not None and begin.ended and (done := int(begin.state.round) + 1) < rounds:
        begin, result = _stage(train, done, begin, earlier)
        earlier = result.rows
    return train(rounds, begin, earlier)


def _horizons(most: int) -> Iterator[int]:
    """The numbers of rounds at the ends of the stages."""
    rounds = min(FIRST, most)
    while rounds < most:
        yield rounds
        rounds = min(2 * rounds, most)
    yield most


def _stage(
    train: Train, rounds: int, begin: Checkpoint | None, earlier: Sequence[Row]
) -> tuple[Checkpoint, Result]:
    """Train up to `rounds`, and where the next stage begins."""
    begun = time.perf_counter() - (0.0 if begin is None else begin.seconds)
    result = train(rounds, begin, earlier)
    values, objective = result.final["constraints"], float(result.final["objective"])
    end = Checkpoint(
        jax.device_put(result.state),
        result.points,
        time.perf_counter() - begun,
        (max([0.0, *values]), objective),
    )
    return end, result


def _of_no_use(before: tuple[float, float], now: tuple[float, float], rows: Sequence[Row]) -> str:
    """Why more rounds are of no use; empty if the last stage gained something.

    `before` and `now` are the violation and the objective of what was reached.
    """
    (far, high), (near, low) = before, now
    if far > 0:
        if near == 0 or near < (1 - GAIN) * far:
            return ""
        gained = "brought the limits no nearer"
    else:
        if near == 0 and high - low > GAIN * objective_scale(high, rows):
            return ""
        gained = f"lowered the objective by less than {100 * GAIN:g} %"
    return f"the last ones {gained}; more rounds would gain next to nothing, a larger batch may"
