"""Tests of claims p - q <= U about two groups, whose rows are independent of each other.

**Rates.** K of n rows of the first group and L of m rows of the second are hits. With d the
observed K/n - L/m, the p-value for given p and q is the probability of so small a difference,

    P(K/n - L/m <= d) = sum_l P(L = l) G(l),    G(l) = P(K <= n (d + l/m)),

which by summation by parts is sum_l (G(l) - G(l - 1)) P(L >= l). K and L are binomial: the rows are
independent draws from one population, that of all sites together. The second rate q is not known.
It lies outside an interval of Clopper and Pearson with probability `beta` at most, which is added
(Berger and Boos, 1994); inside, the largest p-value over p = q + U counts. It falls with p and
grows with q, so for q in [a, b] its value at p = a + U, q = b is a bound of it: the maximum over a
partition of the interval is an upper bound, not an approximation.

**Means** of numbers in [0, 1]. For every m the product of the capital against "the first mean is at
least m + U" and of the capital against "the second is at most m" (`means`) has expectation 1 at
most where both are true. If the first mean exceeds the second by U or more, this is so for one m:
the smallest product over all m is an e-value.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy

from fedssca.evaluate.confidence.means import Floats, log_capital

__all__ = ["BetSums", "mean_gap_log_capital", "rate_gap_p_value"]

CELLS = 16, 64, 256
"""The number of parts into which the interval of the unknown rate is divided; more if needed."""
BETA = 0.02
"""beta as a share of the largest p-value that matters."""


def rate_gap_p_value(
    first: tuple[int, int], second: tuple[int, int], limit: float, delta: float = 0.05
) -> float:
    """The p-value of the claim p - q <= limit, from (hits, rows) of both groups.

    `delta` is the probability of error that is aimed at: beta is a share of it.
    """
    (k, n), (hits, m) = first, second
    if limit >= 1:
        return 0.0
    if not n or not m or limit <= -1:
        return 1.0
    beta = BETA * delta
    low = float(scipy.special.betaincinv(hits, m - hits + 1, beta / 2)) if hits else 0.0
    high = float(scipy.special.betaincinv(hits + 1, m - hits, 1 - beta / 2)) if hits < m else 1.0
    high = min(high, 1 - limit)  # a larger q leaves no p for which the claim would be wrong
    if low > high:
        return beta
    d, bound = k / n - hits / m, 1.0
    for cells in CELLS:
        ends = np.linspace(low, high, cells + 1)
        least = np.maximum(ends + limit, 0)
        bound = min(1.0, float(_tails(d, n, m, least[:-1], ends[1:]).max()) + beta)
        exact = float(_tails(d, n, m, least[1:], ends[1:]).max()) + beta
        if not exact <= delta < bound:
            break  # finer parts would not change whether the claim passes
    return bound


def _tails(d: float, n: int, m: int, p: Floats, q: Floats) -> Floats:
    """A bound of P(K/n - L/m <= d) for every pair of rates."""
    begin = max(0, math.floor(m * float(q.min()) - _spread(m, float(q.min()))))
    end = min(m, math.ceil(m * float(q.max()) + _spread(m, float(q.max()))))
    counts = np.arange(begin, end + 1)
    # A difference that equals d up to rounding counts.
    most = np.floor(n * (d + counts / m) + 1e-9 * n)
    least = np.where(most < 0, 0.0, scipy.special.bdtr(np.clip(most, 0, n), n, p[:, None]))
    rises = np.diff(least, axis=1, prepend=0.0)
    tails = scipy.special.bdtr(m - counts, m, 1 - q[:, None])
    tails[:, 0] = 1.0
    beyond = scipy.special.bdtr(m - end - 1, m, 1 - q) if end < m else np.zeros(len(q))
    return np.asarray((rises * tails).sum(axis=1) + beyond)


def _spread(m: int, q: float) -> float:
    """How far a binomial number is from its mean in all but very few draws."""
    return 8 * math.sqrt(m * q * (1 - q)) + 20


class BetSums(NamedTuple):
    """The bets on the mean of a group, their sums S, and the number of rows."""

    bets: Floats
    sums: Floats
    rows: float


def mean_gap_log_capital(first: BetSums, second: BetSums, limit: float) -> float:
    """log of the capital against "the first mean exceeds the second by `limit` or more".

    `first` are bets on x, `second` are bets on 1 - x.
    """
    if limit >= 1:
        return math.inf
    if limit <= -1 or not first.rows or not second.rows:
        return -math.inf

    def product(m: float) -> float:
        """A convex function of m: the logarithm of a sum of log-convex ones."""
        return float(log_capital(*first, m + limit) + log_capital(*second, 1 - m))

    ends = max(0.0, -limit), min(1.0, 1 - limit)
    found = scipy.optimize.minimize_scalar(
        product, bounds=ends, method="bounded", options={"xatol": 1e-9}
    )
    return min(float(found.fun), product(ends[0]), product(ends[1]))
