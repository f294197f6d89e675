"""Columns that were read as text although their cells look like numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from fedssca.data.encode.cells import Array, fitting_dates, is_text
from fedssca.data.lines import is_number

__all__ = ["misread_numbers"]

FEWEST_VALUES = 20
"""Columns with at most so many different values are ordinary categories."""
MOSTLY = 0.9
"""Columns in which at least this share of the cells looks like numbers were meant as numbers."""
_DIGITS = r"(?:\d{1,3}(?:[.,'’ \u00a0]\d{3})+|\d+)(?:[.,]\d*)?|[.,]\d+"
_WRITTEN = re.compile(rf"[-+]?\s?[$€£]?\s?[-+]?(?:{_DIGITS})(?:[eE][-+]?\d+)?\s?[%$€£]?")


def misread_numbers(
    table: Mapping[str, Array], but: Collection[str] = (), tell: bool = True
) -> Iterator[str]:
    """Yield a line about each column of text that should be numbers, except those in `but`.

    With `tell` a cell is shown, which a site does not do.
    """
    for name, cells in table.items():
        if name not in but and is_text(cells) and (why := _misread(cells, tell)):
            yield f"column {name!r} {why}"


def _misread(cells: Array, tell: bool) -> str:
    """Say what is wrong with a column of text that should be numbers; "" if it should not."""
    kinds, first, places = np.unique(cells, return_index=True, return_inverse=True)
    there = kinds != ""
    if there.sum() <= FEWEST_VALUES:
        return ""
    written = np.array([bool(_WRITTEN.fullmatch(kind)) for kind in kinds.tolist()])
    rows = np.bincount(places, minlength=len(kinds)) * there
    if rows[written].sum() < MOSTLY * rows.sum() or fitting_dates(cells):
        return ""
    odd = there & ~written
    unusual = there & np.array([not is_number(kind) for kind in kinds.tolist()])
    shown = int(first[next(mark for mark in (odd, unusual, there) if mark.any())].min())
    example = f", such as {str(cells[shown])!r} in row {shown + 1}" if tell else ""
    codes = "if these are codes, list it in data.categories; or leave it out (data.drop)"
    if not odd.any():
        how = "not written plainly" if unusual.any() else "saved as text"
        return f"holds numbers that are {how}{example}: write 1234.5; {codes}"
    if rows[odd].sum() == 1 and shown == 0:
        codes = f"if that row holds the names of columns, leave data.columns out; {codes}"
    mark = f" = [{str(cells[shown])!r}]" if tell else ""
    return (
        f"holds numbers, but {rows[odd].sum()} of {rows.sum()} cells are none{example}: mend them, "
        f"or if they mean missing, set data.missing{mark}; {codes}"
    )
