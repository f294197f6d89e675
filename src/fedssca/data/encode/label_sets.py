"""Several labels at once: which labels a row has, as one number, its label set.

Bit k of the number is label k, so that a row with the labels 0 and 2 of three has y = 1 + 4 = 5.
A label set is one whole number per row, as a class is, so rows are divided, sampled, counted and
sent alike whatever their labels are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedssca.data.encode.cells import PAIRS, Array, is_text, missing_cells
from fedssca.errors import UserError

__all__ = [
    "MOST_LABELS",
    "check_label_names",
    "check_two_values",
    "has_label",
    "label_sets",
    "marks_of",
    "sets_of",
    "subsets",
    "without_rare",
]

MOST_LABELS = 24
"""The largest number of labels. Every label set is then exact in single precision."""
RARE = 10
"""Label sets with fewer rows are divided together when rows are set aside."""
_YES = {"1", "1.0", *(pair[1] for pair in PAIRS)}
_NO = {"0", "0.0", *(pair[0] for pair in PAIRS)}


def label_sets(indicators: Any) -> Array:
    """The label sets (N,), int32, of a table of zeros and ones (N, M) with a column per label.

    >>> label_sets([[1, 0, 1], [0, 0, 0], [0, 1, 0]]).tolist()
    [5, 0, 2]
    """
    given = np.asarray(indicators)
    if given.ndim != 2 or not 2 <= given.shape[1] <= MOST_LABELS:
        raise UserError(
            f"labels have the shape {given.shape}: several labels at once are a table of zeros and "
            f"ones with one row per sample and 2 to {MOST_LABELS} columns"
        )
    if given.dtype.kind not in "biuf" or not np.isin(given, (0, 1)).all():
        raise UserError(
            "several labels at once are zeros and ones, or false and true: mend y, or give one "
            "label per row"
        )
    return np.asarray(given.astype(np.int32) @ (1 << np.arange(given.shape[1])), np.int32)


def has_label(y: Any, place: Any) -> Any:
    """Which of the rows with these label sets have the label at this place."""
    return (y >> place) & 1 == 1


def sets_of(y: Array, labels: int) -> Array:
    """The table of zeros and ones (N, M), int32, of the label sets of N rows."""
    return np.asarray((np.asarray(y)[:, None] >> np.arange(labels)) & 1, np.int32)


def subsets(mask: int) -> list[int]:
    """All label sets with no other labels than those of `mask`, from the smallest on.

    >>> subsets(5)
    [0, 1, 4, 5]
    """
    found = [0]
    for bit in (1 << place for place in range(MOST_LABELS) if has_label(mask, place)):
        found += [each | bit for each in found]
    return found


def without_rare(y: Array) -> Array:
    """The label sets, with one number (-1) for all that have few rows."""
    kinds, places, counts = np.unique(y, return_inverse=True, return_counts=True)
    return np.asarray(np.where(counts < RARE, -1, kinds)[places])


def check_label_names(where: str, names: Sequence[str]) -> None:
    """Raise a UserError unless these can be the names of several labels."""
    if not 2 <= len(names) <= MOST_LABELS:
        raise UserError(f"{where}: {len(names)} labels; there can be 2 to {MOST_LABELS}")
    if twice := [name for name in names if list(names).count(name) > 1]:
        raise UserError(f"{where}: the label {twice[0]!r} is named twice; name it once")


def marks_of(cells: Array, label: str, where: str) -> Array:
    """Which rows have a label, from its column of 0 and 1, false and true, or no and yes."""
    if missing_cells(cells).any():
        row = int(np.flatnonzero(missing_cells(cells))[0])
        raise UserError(
            f"{where}: the label {label!r} is missing in row {row + 1}; fill in or leave out such "
            "rows"
        )
    if not is_text(cells):
        found = cells.astype(np.float64) if cells.dtype.kind in "biuf" else np.full(len(cells), 2.0)
        wrong = (found != 0) & (found != 1)
        yes = found == 1
    else:
        plain = np.char.lower(np.char.strip(cells))
        yes = np.isin(plain, sorted(_YES))
        wrong = ~yes & ~np.isin(plain, sorted(_NO))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise UserError(
            f"{where}: the label {label!r} is neither 0 nor 1 in row {row + 1}; each of several "
            "labels is 0 or 1, false or true, no or yes, or compares a column with a number "
            '("price > 100")'
        )
    return yes


def check_two_values(where: str, y: Array, names: Sequence[Any]) -> None:
    """Raise a UserError if a label is that of all rows, or of none."""
    for place, name in enumerate(names):
        own = has_label(y, place)
        if own.all() or not own.any():
            which = "all training rows have" if own.all() else "no training row has"
            raise UserError(
                f"{where}: {which} the label {name!r}; there is nothing to predict: leave it out"
            )
