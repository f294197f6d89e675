"""The cells that columns divide the training rows into: values, bins, and their intersections."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedssca.errors import UserError

__all__ = ["Cell", "Mask", "cells_of", "checked_bins", "representatives"]

Mask: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""(columns by name) -> which rows are meant."""
MOST_VALUES = 50
"""The largest number of different values of a column of numbers without bins."""


class Cell(NamedTuple):
    """The rows with one value in a column, in one bin of it, or in several columns at once."""

    value: str
    """The value as a part of the name of a constraint, such as "Black"."""
    title: str
    """The rows in words, such as "race = Black"."""
    short: str
    """The rows in words beside those of another cell of the same columns, such as "Black"."""
    rows: np.ndarray
    """Which of the training rows are meant."""
    own: Mask


def cells_of(
    what: str,
    columns: Mapping[str, np.ndarray],
    kinds: Mapping[str, Sequence[str]],
    bins: Mapping[str, Sequence[float]],
) -> list[Cell]:
    """The cells that have training rows; none without columns."""
    if unknown := sorted(set(bins) - set(columns)):
        raise UserError(
            f"{what}: bins for {unknown[0]!r}, which is not one of its columns: "
            f"{', '.join(columns) or 'none'}"
        )
    made: list[Cell] = []
    for name, values in columns.items():
        if len(values) != len(next(iter(columns.values()))):
            raise UserError(f"{what}: its columns have different numbers of rows")
        if name in bins:
            own = _bins(what, name, values, bins[name], name in kinds)
        else:
            own = _values(what, name, values, kinds.get(name))
        made = (
            [both for a in made for b in own if (both := _both(a, b)).rows.any()] if made else own
        )
    return made


def _values(what: str, column: str, values: np.ndarray, kinds: Sequence[str] | None) -> list[Cell]:
    found = np.unique(values)
    if kinds is None and len(found) > MOST_VALUES:
        raise UserError(
            f"{what}: column {column!r} has {len(found)} values in the training data; "
            f"at most {MOST_VALUES} can be groups: set bins = [...] to divide the numbers"
        )

    def cell(value: Any) -> Cell:
        word = f"{value:g}" if kinds is None else str(kinds[int(value)])
        return Cell(
            _slug(word),
            f"{column} = {word}",
            word,
            values == value,
            lambda batch: batch[column] == value,
        )

    return [cell(value) for value in found]


def _bins(
    what: str, column: str, values: np.ndarray, edges: Sequence[float], text: bool
) -> list[Cell]:
    if text:
        raise UserError(f"{what}: column {column!r} is text, which has no bins; leave bins out")
    ends = checked_bins(f"{what}: bins of {column!r}", edges)
    made = []
    for low, high in pairwise([None, *ends, None]):
        # Numbers are compared in the type of the column, in training and in counting alike.
        own = partial(_between, column=column, low=low, high=high)
        if low is None:
            name, title = f"below_{high:g}", f"{column} < {high:g}"
        elif high is None:
            name, title = f"from_{low:g}", f"{column} >= {low:g}"
        else:
            name, title = f"{low:g}_to_{high:g}", f"{low:g} <= {column} < {high:g}"
        rows = own({column: values})
        if rows.any():
            made.append(Cell(name, title, title, rows, own))
    return made


def _between(batch: Mapping[str, Any], column: str, low: float | None, high: float | None) -> Any:
    values = batch[column]
    above = True if low is None else values >= low
    return above if high is None else above & (values < high)


def checked_bins(what: str, edges: Sequence[float]) -> list[float]:
    """The ends of bins, which increase."""
    ends = [float(end) for end in edges]
    if not ends or not np.isfinite(ends).all() or any(a >= b for a, b in pairwise(ends)):
        raise UserError(f"{what} = {list(edges)}: give numbers that increase, such as [25, 40, 60]")
    return ends


def representatives(values: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """For each number the smallest of its bin, and for the first bin the next below its end.

    Counts of these numbers tell how many rows are in which bin, and nothing else of the rows.
    """
    ends = np.asarray(edges, np.float32)
    starts = np.append(np.nextafter(ends[:1], np.float32(-np.inf)), ends)
    return np.asarray(starts[np.searchsorted(ends, values.astype(np.float32), side="right")])


def _both(a: Cell, b: Cell) -> Cell:
    """The intersection of two cells."""

    def own(batch: Mapping[str, Any]) -> Any:
        return a.own(batch) & b.own(batch)

    return Cell(
        f"{a.value}_{b.value}",
        f"{a.title}, {b.title}",
        f"{a.short}, {b.short}",
        a.rows & b.rows,
        own,
    )


def _slug(word: str) -> str:
    """A value without blanks, for names of constraints."""
    return re.sub(r"\s+", "-", word.strip())
