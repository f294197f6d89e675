"""The limits of a run as pages show them: one per stated limit, whatever its files hold.

Runs from before there were stated limits have constraints only; each is then a limit by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["kept_so_far", "number", "shown_limits"]

Row = dict[str, Any]
LARGEST_NUMBER = 1e300
"""Larger numbers count as unknown: scales computed from them would overflow."""


def number(value: Any) -> float | None:
    """The value if it is a number that a page can draw, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < LARGEST_NUMBER else None


def shown_limits(known: Row, values: Sequence[Any], most: int | None = None) -> list[Row]:
    """The limits that result.json or problem.json tell of; `values` are those of the last row.

    Of more than `most` limits, those with the largest values are returned.
    """
    names, limits = _list(known, "constraint_names"), _list(known, "limits")
    count = max(len(names), len(limits), len(values))
    found = [entry for entry in map(_stated, _list(known, "stated_limits")) if entry]
    covered = {m for entry in found for m in entry["indices"]}
    if covered != set(range(count)):
        found = [{"indices": [m]} for m in range(count)]
    for entry in found:
        first = entry["indices"][0]
        entry["index"] = first
        entry["name"] = str(names[first]) if first < len(names) else f"constraint {first + 1}"
        entry["limit"] = number(limits[first]) if first < len(limits) else None

    def order(entry: Row) -> float:
        own = [number(values[m]) for m in entry["indices"] if m < len(values)]
        return -max((value for value in own if value is not None), default=-math.inf)

    chosen = sorted(found, key=order)[:most]
    return [entry for entry in found if entry in chosen]


def kept_so_far(known: Row, values: Any) -> list[int] | None:
    """How many limits a row keeps, and how many there are; None without limits."""
    if not (isinstance(values, list) and values and all(number(v) is not None for v in values)):
        return None
    limits = shown_limits(known, values)
    kept = [all(values[m] <= 0 for m in entry["indices"]) for entry in limits]
    return [sum(kept), len(kept)]


def _stated(entry: Any) -> Row | None:
    """A stated limit in a file; None if it is not one."""
    if not isinstance(entry, dict):
        return None
    indices = _list(entry, "constraints")
    if not indices or not all(isinstance(m, int) and 0 <= m < 100_000 for m in indices):
        return None
    words = {key: str(entry.get(key, "")) for key in ("quantity", "title")}
    return {"indices": indices, **words, **{key: number(entry.get(key)) for key in ("low", "high")}}


def _list(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    return value if isinstance(value, list) else []
