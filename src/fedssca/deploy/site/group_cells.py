"""The labels and groups of a site's rows that limits are about: cells, places and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedssca.data.dataset import Array
from fedssca.data.encode import is_text, missing_cells, named_cells
from fedssca.deploy.census import OTHER
from fedssca.deploy.site.raw_table import RawTable
from fedssca.deploy.site.refusal import LimitRefused
from fedssca.errors import UserError
from fedssca.problem.constraints.cells import representatives

__all__ = [
    "MOST_GROUPS",
    "GroupCount",
    "check_labels",
    "counted",
    "extra_cells",
    "group_cells",
    "known_cells",
    "places_of",
]

Places: TypeAlias = tuple[int, ...]
"""The places of a label and of groups among those that all sites tell."""
GroupCount: TypeAlias = tuple[Places, int]
"""A label and groups, and the number of their rows."""
Bins: TypeAlias = Mapping[str, Any]
"""By column of numbers the bins into which a limit divides it."""

MOST_GROUPS = 1000
"""The largest number of labels, or of groups for a constraint, that a site counts."""


def group_cells(table: RawTable, name: str, bins: Bins) -> Array:
    """A column that constraints ask for; numbers as the bins that they are in."""
    cells = extra_cells(table, name)
    if name in bins and not is_text(cells):
        return representatives(cells, bins[name])
    return cells


def places_of(
    table: RawTable, labels: Sequence[Any], groups: Mapping[str, Sequence[Any]], bins: Bins
) -> Array:
    """For each row the places of its label and of its groups."""
    assert table.y is not None
    check_labels(table.y, labels)
    columns = [(table.y, labels)]
    for name, kinds in groups.items():
        cells = group_cells(table, name, bins)
        columns.append((known_cells(cells, kinds, name), kinds))
    places = np.empty(table.rows, object)
    found = [{kind: place for place, kind in enumerate(kinds)} for _, kinds in columns]
    for row, values in enumerate(zip(*(cells.tolist() for cells, _ in columns), strict=True)):
        places[row] = tuple(own[value] for own, value in zip(found, values, strict=True))
    return places


def counted(places: Array, least: int) -> list[GroupCount]:
    """The number of rows of every combination, of which none may have fewer than `least`."""
    found = Counter(places.tolist())
    if len(found) > MOST_GROUPS:
        raise UserError(
            f"{len(found)} groups to count, at most {MOST_GROUPS}: give the constraint's "
            "column of numbers bins = [...]"
        )
    if found and min(found.values()) < least:
        raise LimitRefused(
            "limits.least_rows",
            least,
            "a group of rows with the same label that the run's limits need is smaller; state "
            "limits over larger groups or, for test and calibration rows, hide the sums "
            "(privacy.secure_sum)",
        )
    return [(group, count) for group, count in sorted(found.items())]


def check_labels(y: Array, labels: Collection[Any]) -> None:
    """Refuse labels that are not among those that sites tell."""
    if not set(np.unique(y).tolist()) <= set(labels):
        raise UserError(
            "some of its rows have a label that no site has in enough rows to be told "
            "(limits.least_rows); leave out such rows"
        )


def known_cells(cells: Array, kinds: Sequence[Any] | None, name: str) -> Array:
    """A column beside x in which values that no site tells are "other"."""
    if kinds is None:
        return cells
    known = np.isin(cells, np.array(kinds))
    if known.all():
        return cells
    if OTHER not in kinds:
        raise UserError(
            f"a constraint's column {name!r} has values that no site has in enough rows to be told "
            "(limits.least_rows); leave out such rows, or give a column of numbers bins = [...]"
        )
    return np.where(known, cells, OTHER)


def extra_cells(table: RawTable, name: str) -> Array:
    """A column that a constraint asks for."""
    cells = table.extra[name]
    if is_text(cells):
        return named_cells(cells)
    if missing_cells(cells).any():
        row = int(np.flatnonzero(missing_cells(cells))[0])
        raise UserError(f"a constraint's column {name!r} is missing in row {row + 1}; fill it in")
    return cells
