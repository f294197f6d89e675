"""Limits of user-written constraints: one number, or a pair (low, high) that bounds both sides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedssca.errors import UserError

__all__ = ["Limit", "Side", "sides"]

Limit: TypeAlias = float | Sequence[float | None]
"""U for mean <= U, or (low, high) for low <= mean <= high; None leaves one side open."""


class Side(NamedTuple):
    """One side of a limit: sign * mean <= limit."""

    name: str
    sign: float
    limit: float


def sides(name: str, limit: Limit) -> list[Side]:
    """The sides of a limit, the upper one first; the lower one is named `<name>_lower`.

    >>> [tuple(side) for side in sides("gap", (-0.1, 0.2))]
    [('gap', 1.0, 0.2), ('gap_lower', -1.0, 0.1)]
    """
    given: Any = limit
    if np.ndim(given) == 0 and given is not None:
        return [Side(name, 1.0, _finite(name, given))]
    ends = [] if given is None else list(given)
    if len(ends) != 2 or all(end is None for end in ends):
        raise UserError(
            f"constraint {name!r}: limit = {limit}: give a number, or a pair (low, high) of which "
            "at most one is None"
        )
    low, high = (None if end is None else _finite(name, end) for end in ends)
    if low is not None and high is not None and low > high:
        raise UserError(
            f"constraint {name!r}: limit = ({low:g}, {high:g}): the lower end is above the upper "
            "one; give (low, high)"
        )
    upper = [] if high is None else [Side(name, 1.0, high)]
    return upper + ([] if low is None else [Side(f"{name}_lower", -1.0, 0.0 - low)])


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"constraint {name!r}: limit = {value}: it must be a finite number")
    return number
