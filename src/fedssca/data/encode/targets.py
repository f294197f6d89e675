"""The target of a table: a class, a set of labels, a number that is standardised, or a count.

A target of numbers is trained in a unit of its own, y = (target - shift) / scale, so that step
sizes and weights of |w|^2 do not depend on whether it is written in euros or in cents:

    number    shift is the mean of the training rows, scale their standard deviation
    count     shift is 0, scale is the mean: a Poisson model predicts scale * exp(score)
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fedssca.data.encode.cells import Array, is_text, missing_cells
from fedssca.data.encode.label_sets import without_rare
from fedssca.data.encode.summary import Moments
from fedssca.errors import UserError

__all__ = [
    "NAMED",
    "TargetKind",
    "TargetScale",
    "as_strata",
    "strata_of",
    "target_numbers",
    "target_scale",
]

TargetKind: TypeAlias = Literal["class", "labels", "number", "count"]
"""What the label holds; "labels": several labels at once, each in a column of its own."""
NAMED: tuple[TargetKind, ...] = ("class", "labels")
"""The kinds of targets that are names; others are numbers, which have a unit."""
STRATA = 10
"""The number of parts, equally large, into which a target of numbers is divided."""


class TargetScale(NamedTuple):
    """The unit in which a target of numbers is trained: y = (target - shift) / scale."""

    shift: float
    scale: float

    def encode(self, numbers: Array) -> Array:
        """The targets y in this unit, as float32."""
        y = (np.asarray(numbers, np.float64) - self.shift) / self.scale
        return np.asarray(y, np.float32)

    def decode(self, y: Array) -> Array:
        """The targets in their own unit, as float64."""
        return np.asarray(self.shift + self.scale * np.asarray(y, np.float64))


def target_numbers(where: str, cells: Array, kind: TargetKind) -> Array:
    """The targets as float64; a UserError names the first row that has none.

    Counts must not be negative.
    """
    if cells.ndim != 1 or is_text(cells) or cells.dtype.kind not in "biuf":
        raise UserError(
            f"{where}: the target of a regression is text or no column of numbers; set label to a "
            'column of numbers, or problem.task = "classification"'
        )
    if missing_cells(cells).any():
        row = int(np.flatnonzero(missing_cells(cells))[0])
        raise UserError(f"{where}: the target is missing in row {row + 1}; leave out such rows")
    numbers = cells.astype(np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise UserError(f"{where}: the target is {numbers[row]} in row {row + 1}; mend such rows")
    if kind == "count" and (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise UserError(
            f"{where}: the target is {numbers[row]:g} in row {row + 1}, and the loss poisson is "
            'for counts, which are 0 or more; use problem.loss = "squared"'
        )
    return numbers


def target_scale(where: str, moments: Moments | None, kind: TargetKind) -> TargetScale:
    """The unit of a target from the number of its training rows, mean and squared distances."""
    if moments is None:
        raise UserError(f"{where}: no training row has a target of numbers; set label")
    rows, mean, spread = moments
    deviation = math.sqrt(max(spread, 0.0) / rows)
    if deviation <= 1e-12 * abs(mean):
        raise UserError(
            f"{where}: the target is {mean:g} in all training rows; there is nothing to predict: "
            "set label to another column"
        )
    return TargetScale(0.0, mean) if kind == "count" else TargetScale(mean, deviation)


def strata_of(y: Array, kind: TargetKind) -> Array:
    """What rows that are set aside have in equal shares: the class, or the label set.

    Rare label sets are taken together. A target of numbers is not divided.
    """
    if kind == "labels":
        return without_rare(y)
    return y if kind == "class" else np.zeros(len(y))


def as_strata(y: Array) -> Array:
    """The classes of labels, or the tenth of the rows that a target of numbers is in."""
    if y.dtype.kind != "f":
        return y
    ends = np.quantile(y, np.arange(1, STRATA) / STRATA)
    return np.searchsorted(ends, y, side="right")
