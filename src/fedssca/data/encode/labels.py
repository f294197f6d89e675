"""The label of a table: a column of it, or a comparison of a column with a number."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fedssca.data.classes import Label
from fedssca.data.encode.cells import Array, as_text, is_text, missing_cells
from fedssca.errors import UserError

__all__ = ["class_places", "label_cells", "label_column", "label_source"]

USUAL = ("y", "label", "target", "class")
"""Names of columns that are labels if none is given."""
_COMPARED = re.compile(r"\s*(.+?)\s*(<=|>=|<|>)\s*(-?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*")
_SIGNS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "<=": (operator.le, ">"),
    ">=": (operator.ge, "<"),
    "<": (operator.lt, ">="),
    ">": (operator.gt, "<="),
}
"""Each sign, what it means, and the sign of its opposite."""


def label_column(table: Mapping[str, Array], label: str | None, where: str) -> tuple[str, str]:
    """The label as it was asked for, and the column of the table that it needs.

    Without a `label`, the one column with a usual name is taken.
    """
    named = [name for name in USUAL if name in table] if not label else [label]
    if len(named) == 1 and (column := label_source(named[0], table)) is not None:
        return named[0], column
    what = f"there is no column {label!r}" if label else "no label column is given"
    raise UserError(f"{where}: {what}; set label to one of {', '.join(table)}")


def label_source(label: str, names: Collection[str]) -> str | None:
    """The column that a label needs; None if it is not among the names."""
    if label in names:
        return label
    found = _COMPARED.fullmatch(label)
    return found[1] if found and found[1] in names else None


def label_cells(table: Mapping[str, Array], label: str, where: str) -> Array:
    """The label of every row; with the label "num > 0" it is the text num > 0 or num <= 0."""
    if label in table:
        return table[label]
    name, column = label_column(table, label, where)
    values = table[column]
    if is_text(values) and not missing_cells(values).all():
        raise UserError(f"{where}: {name!r} compares text with a number; use a column of numbers")
    found = _COMPARED.fullmatch(name)
    assert found is not None
    compare, opposite = _SIGNS[found[2]]
    yes, no = f"{column} {found[2]} {found[3]}", f"{column} {opposite} {found[3]}"
    told = np.where(compare(values, float(found[3])), yes, no)
    return np.where(missing_cells(values), "", told)


def class_places(labels: Sequence[Label], values: Array, where: str) -> Array:
    """The classes 0, 1, ... of raw labels; a UserError names the first row that has none.

    A full stop at the end of a label is ignored if no class is called so: the test files of some
    archives have one.
    """
    places = {_plain(label): number for number, label in enumerate(labels)}
    out = np.empty(len(values), np.int32)
    for row, value in enumerate(as_text(values).tolist()):
        place = places.get(value, places.get(value.lower(), places.get(value.rstrip("."))))
        if place is None:
            shown = ", ".join(map(str, labels[:10]))
            what = f"has the label {value!r}" if value else "has no label"
            raise UserError(f"{where}: row {row + 1} {what}; the classes are {shown}")
        out[row] = place
    return out


def _plain(label: Label) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)
