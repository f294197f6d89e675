"""The label of a table: a column of it, or a comparison of a column with a number.

Several labels at once are a list of such labels, and a row has a label set (`label_sets`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedssca.data.classes import Label
from fedssca.data.encode.cells import Array, as_text, is_text, missing_cells
from fedssca.data.encode.label_sets import check_label_names, label_sets, marks_of
from fedssca.errors import UserError, nearest

__all__ = [
    "LabelName",
    "as_label",
    "class_places",
    "label_cells",
    "label_columns",
    "label_sources",
    "rows_with_label",
]

LabelName: TypeAlias = str | tuple[str, ...]
"""The label of a table, or several labels at once."""

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


def as_label(label: str | Sequence[str]) -> LabelName:
    """The label as it was asked for, with several labels as a tuple."""
    return label if isinstance(label, str) else tuple(label)


def label_columns(
    table: Mapping[str, Array], label: LabelName | None, where: str
) -> tuple[LabelName, tuple[str, ...]]:
    """The label as it was asked for, and the columns of the table that it needs.

    Without a `label`, the one column with a usual name is taken.
    """
    if isinstance(label, tuple):
        check_label_names(where, label)
        for each in label:
            if label_sources(each, table) is None:
                raise UserError(
                    f"{where}: there is no column for the label {each!r}; {nearest(each, table)}"
                )
        return label, label_sources(label, table) or ()
    named = [name for name in USUAL if name in table] if not label else [label]
    if len(named) == 1 and (columns := label_sources(named[0], table)) is not None:
        return named[0], columns
    what = f"there is no column {label!r}" if label else "no label column is given"
    raise UserError(f"{where}: {what}; set label to one of {', '.join(table)}")


def label_sources(label: LabelName, names: Collection[str]) -> tuple[str, ...] | None:
    """The columns that a label needs; None if they are not all among the names."""
    if isinstance(label, tuple):
        found = [label_sources(each, names) for each in label]
        columns = [column for own in found for column in own or ()]
        return None if None in found else tuple(dict.fromkeys(columns))
    if label in names:
        return (label,)
    compared = _COMPARED.fullmatch(label)
    return (compared[1],) if compared and compared[1] in names else None


def label_cells(table: Mapping[str, Array], label: LabelName, where: str) -> Array:
    """The label of every row; with the label "num > 0" it is the text num > 0 or num <= 0.

    Of several labels it is the label set of every row, and all of them must be there.
    """
    if isinstance(label, tuple):
        label_columns(table, label, where)
        return label_sets(np.stack([_marks(table, each, where) for each in label], axis=1))
    if label in table:
        return table[label]
    values, (column, sign, number) = _compared(table, label, where)
    compare, opposite = _SIGNS[sign]
    told = np.where(
        compare(values, float(number)), f"{column} {sign} {number}", f"{column} {opposite} {number}"
    )
    return np.where(missing_cells(values), "", told)


def rows_with_label(table: Mapping[str, Array], label: LabelName, where: str) -> Array:
    """Which rows have a label, or all of several ones."""
    _, columns = label_columns(table, label, where)
    return np.logical_and.reduce([~missing_cells(table[column]) for column in columns])


def _marks(table: Mapping[str, Array], label: str, where: str) -> Array:
    """Which rows have one of several labels."""
    if label in table:
        return marks_of(table[label], label, where)
    values, (_, sign, number) = _compared(table, label, where)
    met = np.where(missing_cells(values), np.nan, _SIGNS[sign][0](values, float(number)))
    return marks_of(met, label, where)


def _compared(
    table: Mapping[str, Array], label: str, where: str
) -> tuple[Array, tuple[str, str, str]]:
    """The numbers that a label compares, and the column, the sign and the number of it."""
    _, (column,) = label_columns(table, label, where)
    values = table[column]
    if is_text(values) and not missing_cells(values).all():
        raise UserError(f"{where}: {label!r} compares text with a number; use a column of numbers")
    found = _COMPARED.fullmatch(label)
    assert found is not None
    return values, (column, found[2], found[3])


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
