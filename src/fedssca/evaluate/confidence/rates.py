"""Exact tests and bounds for one rate, from counts.

k of n independent rows have the property whose probability is p. The claim p <= U is tested against
its contrary p > U, and

    p-value = P(Bin(n, U) <= k),        bound = the largest p with P(Bin(n, p) <= k) >= delta,

the upper bound of Clopper and Pearson. The rows need not have the same p: if rows of several sites
are drawn in fixed numbers, p is the mean of their probabilities, and by a theorem of Hoeffding
(1956)

    P(K <= c) <= P(Bin(n, p) <= c)    for    c <= n p - 1.

`lower_tail` is 1 for larger c, so that everything here holds for such draws too.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["lower_tail", "rate_p_value", "rate_upper_bound", "rows_needed"]

Floats = npt.NDArray[np.float64]


def lower_tail(c: npt.ArrayLike, n: int, p: npt.ArrayLike) -> Floats:
    """A bound of P(K <= c) for the number K of hits among n independent rows with mean rate p."""
    c, p = np.broadcast_arrays(np.floor(np.asarray(c, float)), np.asarray(p, float))
    safe = np.clip(c, 0, n)
    tail = np.where(
        c < 0, 0.0, np.where(c <= n * p - 1, scipy.special.bdtr(safe, n, np.clip(p, 0, 1)), 1.0)
    )
    return np.asarray(tail, float)


def rate_p_value(hits: int, rows: int, limit: float) -> float:
    """The p-value of the claim p <= limit: how likely so few hits were if p were above it.

    >>> round(rate_p_value(0, 149, 0.02), 4)
    0.0493
    """
    if limit >= 1:
        return 0.0
    if limit < 0 or not rows:
        return 1.0
    return float(lower_tail(hits, rows, limit))


def rate_upper_bound(hits: int, rows: int, delta: float) -> float:
    """The smallest U such that p <= U can be claimed with probability of error `delta`.

    >>> round(rate_upper_bound(0, 42, 0.05), 3)
    0.069
    """
    if hits >= rows:
        return 1.0
    exact = float(scipy.special.betaincinv(hits + 1, rows - hits, 1 - delta))
    return min(1.0, max(exact, (hits + 1) / rows))


def rows_needed(limit: float, delta: float) -> int:
    """The smallest number of rows that can certify p <= limit, if none of them is a hit.

    (1 - limit)^n <= delta, so n = log(delta) / log(1 - limit).

    >>> rows_needed(0.02, 0.05)
    149
    """
    if limit >= 1:
        return 0
    if limit <= 0:
        return 0x7FFFFFFF
    return max(math.ceil(math.log(delta) / math.log1p(-limit)), math.ceil(1 / limit))
