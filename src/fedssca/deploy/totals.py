"""The counts and sums of all sites with rows: joined from plain answers, or from one hidden sum.

For the hidden sum a site writes everything that it would tell as one vector of integers, and the
server reads the same totals from the sum of the vectors. Means and squared distances are exact:
with n values, mean m and squared distances s, a site adds n, n m and s + n m^2, each as a number
of 200 binary digits after the point, in pieces of 40 bits. So all sites together have

    mean = sum(n m) / sum(n),        s = sum(s + n m^2) - sum(n m)^2 / sum(n)

without the rounding errors that such a difference has in floating point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fedssca.data.encode import ColumnSummary
from fedssca.data.encode.cells import DATES
from fedssca.data.encode.summary import Moments
from fedssca.errors import UserError

__all__ = ["CensusLayout", "SiteTotals"]

BITS, LIMBS, POINT = 40, 11, 200
BYTES = 256


class SiteTotals(NamedTuple):
    """What one site, or all of them, count and add up."""

    summaries: dict[str, ColumnSummary]
    counts: Mapping[tuple[int, ...], int]
    """The rows of each combination of the places of a label and of groups."""
    most: int = 0
    """Of an array of bytes: the largest number."""


class CensusLayout(NamedTuple):
    """What stands where in the vector; all sites and the server have the same."""

    words: dict[str, list[str]]
    """For each column that is encoded: the texts that some site tells."""
    groups: list[int]
    """How many labels and how many values of each grouping column there are; empty: no counts."""
    bytes: bool
    """Whether x is an array of bytes whose largest number is needed."""

    @property
    def size(self) -> int:
        """The number of integers."""
        moments = 1 + 2 * LIMBS
        column = 5 + moments + len(DATES) * (1 + moments) + 1 + moments
        texts = sum(len(words) for words in self.words.values())
        cells = math.prod(self.groups) if self.groups else 0
        return len(self.words) * column + texts + cells + BYTES * self.bytes

    def pack(self, own: SiteTotals) -> np.ndarray:
        """The vector of one site."""
        out: list[int] = []
        for name, words in self.words.items():
            out += _column(own.summaries[name], words)
        if self.groups:
            cells = np.zeros(self.groups, np.int64)
            for place, count in own.counts.items():
                cells[place] = count
            out += cells.ravel().tolist()
        if self.bytes:
            out += [int(value == own.most) for value in range(BYTES)]
        return np.array(out, np.int64)

    def unpack(self, total: np.ndarray, rows: int, sites: int) -> SiteTotals:
        """The totals of all sites, which have so many training rows, from the sum of vectors."""
        read = iter(total.tolist())
        summaries = {
            name: _summary(name, words, read, rows, sites) for name, words in self.words.items()
        }
        counts: dict[tuple[int, ...], int] = {}
        if self.groups:
            for place in np.ndindex(*self.groups):
                if count := next(read):
                    counts[place] = count
        reached = [value for value in range(BYTES) if next(read)] if self.bytes else []
        return SiteTotals(summaries, counts, max(reached, default=0))


def _column(own: ColumnSummary, words: Sequence[str]) -> list[int]:
    """What a site adds for one column."""
    told = sum(own.counts.get(word, 0) for word in words)
    others = own.rows - own.missing - told if own.kind == "text" else 0
    out = [own.kind == "text", own.kind == "number", own.unique, own.missing, others]
    out += [own.counts.get(word, 0) for word in words]
    out += _moment_numbers(own.moments)
    for form in DATES:
        out += [form in own.dates, *_moment_numbers(own.dates.get(form))]
    powers = own.powers or (0, 0, 0)
    out += [own.powers is not None, powers[0], *_limbs(powers[1]), *_limbs(powers[2])]
    return [int(number) for number in out]


def _summary(
    name: str, words: Sequence[str], read: Iterator[int], rows: int, sites: int
) -> ColumnSummary:
    """The summary of one column at all sites."""
    text, number, unique, missing, others = (next(read) for _ in range(5))
    counts = {word: count for word in words if (count := next(read))}
    moments = _read_moments(read)
    dates = {}
    for form in DATES:
        fitting, found = next(read), _read_moments(read)
        if fitting == text and found is not None:
            dates[form] = found
    whole, count = next(read), next(read)
    powers = (count, _from_limbs(read), _from_limbs(read))
    if text and number:
        raise UserError(f"column {name!r} is text at one site and numbers at another")
    if not text and not number:
        return ColumnSummary("empty", rows, rows)
    return ColumnSummary(
        "text" if text else "number",
        rows,
        missing,
        moments=moments,
        counts=counts,
        different=len(counts) + (others > 0),
        dates=dates,
        unique=unique == sites,
        powers=powers if unique == sites == whole else None,
    )


def _moment_numbers(moments: Moments | None) -> list[int]:
    rows, mean, spread = map(Fraction, moments or (0.0, 0.0, 0.0))
    first, second = rows * mean, spread + rows * mean * mean
    return [int(rows), *_limbs(round(first * 2**POINT)), *_limbs(round(second * 2**POINT))]


def _read_moments(read: Iterator[int]) -> Moments | None:
    rows = next(read)
    first, second = (Fraction(_from_limbs(read), 2**POINT) for _ in range(2))
    if not rows:
        return None
    return float(rows), float(first / rows), float(max(second - first * first / rows, Fraction(0)))


def _limbs(value: int) -> list[int]:
    """An integer in pieces of 40 bits, the lowest first; the last one has the sign."""
    out: list[Any] = []
    for _ in range(LIMBS - 1):
        value, low = value >> BITS, value & (2**BITS - 1)
        out.append(low)
    if abs(value) >= 2**BITS:
        raise UserError("a column of numbers is too large for a hidden sum; rescale it")
    return [*out, value]


def _from_limbs(read: Iterator[int]) -> int:
    return sum(next(read) << (BITS * place) for place in range(LIMBS))
