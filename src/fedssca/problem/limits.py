"""Limits as users state them, and the constraints that are their sides.

A limit bounds one reported quantity from above, from below or from both sides. Every side is a
constraint F_m <= 0 of its own, and its `Bound` says which quantity it bounds. `stated` joins the
sides again, for everything that people read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedssca.errors import UserError

__all__ = ["Bound", "Limit", "Side", "StatedLimit", "limit_words", "sides", "stated"]

Limit: TypeAlias = float | Sequence[float | None]
"""U for mean <= U, or (low, high) for low <= mean <= high; None leaves one side open."""


class Bound(NamedTuple):
    """What one constraint demands of a reported quantity: low <= quantity, or quantity <= high."""

    quantity: str
    """The name under which the quantity is reported; both sides of a limit have the same."""
    low: float | None = None
    high: float | None = None
    title: str = ""
    """The quantity in words that people read, such as "fnr of 'sick'"; empty: its name."""
    client: int | None = None
    """The client that the quantity is about; None if it is about the rows of all clients."""
    positive: bool = False
    """The values of single rows are at least 0, as those of a loss are."""
    whole: bool = False
    """The quantity of a group is compared with that of all rows, the group's own among them."""
    confidence: float | None = None
    """The probability with which the limit is to hold on new rows; None: nothing is promised."""
    rate: bool = False
    """The values of single rows are 0 or 1 by their definition."""


class StatedLimit(NamedTuple):
    """low <= quantity <= high; a side that is open is None."""

    quantity: str
    title: str
    low: float | None
    high: float | None
    client: int | None
    constraints: tuple[int, ...]
    """The indices (from 0) of the constraints that are its sides."""
    positive: bool = False
    """As in `Bound`."""
    whole: bool = False
    """As in `Bound`."""
    rate: bool = False
    """As in `Bound`."""

    def excess(self, value: float) -> float:
        """By how much a value of the quantity is outside; negative inside, by the margin."""
        above = -math.inf if self.high is None else value - self.high
        below = -math.inf if self.low is None else self.low - value
        return max(above, below)


def limit_words(low: float | None, high: float | None) -> str:
    """The limit low <= quantity <= high in few characters.

    >>> [limit_words(*limit) for limit in ((None, 0.1), (0.9, None), (-0.05, 0.05), (0.2, 0.4))]
    ['≤ 0.1', '≥ 0.9', '±0.05', '0.2 to 0.4']
    """
    if low is None and high is None:
        return "-"
    if low is None:
        return f"≤ {high:g}"
    if high is None:
        return f"≥ {low:g}"
    return f"±{high:g}" if low == -high else f"{low:g} to {high:g}"


def stated(bounds: Sequence[Bound]) -> list[StatedLimit]:
    """The limits whose sides are the constraints with these bounds, in their order.

    >>> upper, lower = Bound("gap", high=0.1), Bound("gap", low=-0.1)
    >>> [(limit.low, limit.high, limit.constraints) for limit in stated([upper, lower])]
    [(-0.1, 0.1, (0, 1))]
    """
    found: list[StatedLimit] = []
    for m, bound in enumerate(bounds):
        at = next((i for i, limit in enumerate(found) if _completes(bound, limit)), None)
        if at is None:
            title = bound.title or bound.quantity
            stated = (bound.quantity, title, bound.low, bound.high, bound.client, (m,))
            found.append(StatedLimit(*stated, bound.positive, bound.whole, bound.rate))
            continue
        limit = found[at]
        found[at] = limit._replace(
            low=bound.low if limit.low is None else limit.low,
            high=bound.high if limit.high is None else limit.high,
            constraints=(*limit.constraints, m),
        )
    return found


def _completes(bound: Bound, limit: StatedLimit) -> bool:
    """The bound is the side that the limit leaves open."""
    open_side = limit.low if bound.high is None else limit.high
    return bound.quantity == limit.quantity and bound.client == limit.client and open_side is None


class Side(NamedTuple):
    """One side of a limit: sign * mean <= limit."""

    name: str
    sign: float
    limit: float

    def bound(self, quantity: str, title: str = "") -> Bound:
        """The same as a bound of the mean, which is reported as `quantity`."""
        if self.sign < 0:
            return Bound(quantity, low=0.0 - self.limit, title=title)
        return Bound(quantity, high=self.limit, title=title)


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
