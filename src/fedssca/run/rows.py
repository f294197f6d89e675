"""A row of metrics as numbers by name, for tables and for tools that know no lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["flat"]

Row = dict[str, Any]
PARTS = {"constraints": "constraint", "slack": "slack", "multipliers": "multiplier"}
"""The lists in a row with one number per constraint, and the name of a single number."""


def flat(row: Row, names: Sequence[str], joint: str = "/") -> dict[str, float]:
    """Return a row without lists: each number of a list gets a name like "constraint/fnr".

    A constraint whose name occurs before gets its number appended.
    """
    own = [name if name not in names[:i] else f"{name}_{i + 1}" for i, name in enumerate(names)]
    out: dict[str, float] = {}
    for key, value in row.items():
        if not isinstance(value, list):
            out[key] = value
            continue
        for m, number in enumerate(value):
            name = own[m] if m < len(own) else str(m + 1)
            out[f"{PARTS.get(key, key)}{joint}{name}"] = number
    return out
