"""Tests of claims on counts that carry noise: the worst counts that noise can have hidden.

A mean p_j is told by two numbers, the sum of x and that of 1 - x over its rows (of a rate: hits and
misses). Each carries noise z with E exp(t z) <= exp(t^2 s^2 / 2), as Gaussian and discrete Gaussian
noise have (Canonne, Kamath and Steinke, 2020) and sums of them, with s^2 the sum of the variances.
All 2 J numbers of a claim lie within

    r = s sqrt(2 log(4 J / beta))

of what was counted, with probability 1 - beta: 2 J numbers, two sides each. beta is a share of the
claim's probability of error. The p-value is beta plus the largest p-value of all counts in this box
of half-width r, which is attained at a corner or bounded by it:

    one rate      P(Bin(k + l, U) <= k) grows with the hits k and falls with the misses l
    one mean      exp(-n KL(x, U)) (Hoeffding 1963), with x = k / n and n = k + l: likewise
    a gap         P(X - Y <= d) <= exp(h d) E exp(-h X) E exp(h Y) for every h >= 0, where X and Y
                  are means of n and m rows in [0, 1]. Each factor is at most that of rows that are
                  0 or 1, it falls with n and m, and it grows with d: the largest d and the smallest
                  n and m of the box count. The second mean is not known; it lies in an interval
                  with probability 1 - beta', and cells of it are as in `gaps`
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy

from fedssca.evaluate.confidence.means import Floats
from fedssca.evaluate.confidence.rates import rate_p_value

__all__ = [
    "CERTAIN",
    "NOISE",
    "Box",
    "box_of",
    "gap_of_boxes",
    "mean_of_box",
    "radius",
    "share_of_boxes",
]

CERTAIN = 6.5
"""Noise is larger than so many standard deviations with probability 1e-9."""

NOISE = 0.1
"""beta as a share of the probability of error of a claim."""
SECOND = 0.02
"""beta' as a share of it."""
CELLS = 64
TILTS: Floats = np.geomspace(1e-3, 20.0, 100)
"""h over the smaller number of rows."""


class Box(NamedTuple):
    """What the sums of x and of 1 - x over the rows of a mean can be."""

    least_hits: float
    most_hits: float
    least_misses: float
    most_misses: float

    @property
    def most(self) -> float:
        """The largest mean."""
        return _ratio(self.most_hits, self.least_misses, 1.0)

    @property
    def least(self) -> float:
        """The smallest mean."""
        return _ratio(self.least_hits, self.most_misses, 0.0)

    @property
    def fewest(self) -> float:
        """The smallest number of rows."""
        return self.least_hits + self.least_misses

    def turned(self) -> Box:
        """The box of 1 - x."""
        return Box(self.least_misses, self.most_misses, self.least_hits, self.most_hits)


def radius(deviation: float, means: int, beta: float) -> float:
    """r: how far the 2 J numbers of so many means may be from the truth.

    >>> round(radius(1.0, 1, 0.005), 2)
    3.66
    """
    return deviation * math.sqrt(2 * math.log(4 * means / beta))


def box_of(hits: float, misses: float, r: float, *, counted: bool) -> Box:
    """All sums within r of the noised ones; counts are whole numbers."""
    ends = [hits - r, hits + r, misses - r, misses + r]
    if counted:
        whole = (math.ceil, math.floor, math.ceil, math.floor)
        ends = [turn(end) for turn, end in zip(whole, ends, strict=True)]
    return Box(*(max(end, 0.0) for end in ends))


def mean_of_box(box: Box, limit: float, *, counted: bool) -> float:
    """The largest p-value of "the mean is at most `limit`" over a box."""
    hits, rows = box.most_hits, box.most_hits + box.least_misses
    if counted:
        return rate_p_value(round(hits), round(rows), limit)
    return _tail(hits, box.least_misses, limit)


def gap_of_boxes(first: Box, second: Box, limit: float, delta: float) -> float:
    """The largest p-value of "the first mean exceeds the second by at most `limit`"."""
    if limit >= 1:
        return 0.0
    n, m, beta = first.fewest, second.fewest, SECOND * delta
    if limit <= -1 or n <= 0 or m <= 0:
        return 1.0
    low = 1 - _largest_mean(second.turned(), beta / 2)
    high = min(_largest_mean(second, beta / 2), 1 - limit)
    if low > high:
        return beta
    ends = np.linspace(max(low, -limit), high, CELLS + 1)
    p, q, h = (ends[:-1] + limit)[:, None], ends[1:, None], min(n, m) * TILTS
    d = first.most - second.least
    logs = h * d + n * np.log1p(p * np.expm1(-h / n)) + m * np.log1p(q * np.expm1(h / m))
    return min(1.0, beta + math.exp(min(0.0, float(logs.min(axis=1).max()))))


def share_of_boxes(part: Box, rest: Box, beta: float) -> tuple[float, float]:
    """Bounds of the share of rows that are in `part`, each wrong with probability `beta`."""
    few, many = part.fewest, part.most_hits + part.most_misses
    others, more = rest.fewest, rest.most_hits + rest.most_misses
    low = float(scipy.special.betaincinv(few, more + 1, beta)) if few > 0 else 0.0
    return low, float(scipy.special.betaincinv(many + 1, others, 1 - beta)) if others > 0 else 1.0


def _ratio(hits: float, misses: float, none: float) -> float:
    return hits / (hits + misses) if hits + misses > 0 else none


def _tail(hits: float, misses: float, mean: float) -> float:
    """exp(-n KL(x, mean)) for x = hits / n below the mean, otherwise 1."""
    n = hits + misses
    if mean >= 1:
        return 0.0
    if n <= 0 or mean <= 0 or hits / n >= mean:
        return 1.0
    x = hits / n
    return math.exp(
        -n * float(scipy.special.rel_entr(x, mean) + scipy.special.rel_entr(1 - x, 1 - mean))
    )


def _largest_mean(box: Box, beta: float) -> float:
    """A bound that the mean exceeds with probability `beta` at most, whatever is in the box."""
    low, high = box.most, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        passed = _tail(box.most_hits, box.least_misses, middle) <= beta
        low, high = (low, middle) if passed else (middle, high)
    return high
