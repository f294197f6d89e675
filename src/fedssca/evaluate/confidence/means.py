"""Tests and bounds for the mean of numbers in [0, 1], from sums only: betting.

Somebody who bets against "the mean of x is at least m" has, after n independent rows, the capital

    W(m, theta) = prod_i (1 - theta x_i) / (1 - theta m),       0 <= theta < 1.

Its expectation is at most 1 if the mean is at least m; for rows with different means mu_i it is
prod_i (1 - theta mu_i) / (1 - theta m) <= 1 by the inequality of the arithmetic and geometric mean,
so rows of several sites may be drawn in fixed numbers. Its logarithm is a sum over rows,

    log W = S(theta) - n log(1 - theta m),      S(theta) = sum_i log(1 - theta x_i),

and S does not depend on m. Sites therefore send S for a few bets theta and nothing else. The bets
are fixed before any of these rows is seen (`chosen_bets`), and a weighted average of their capitals
has expectation at most 1 as well: by the inequality of Markov, P(W(m) >= 1 / delta) <= delta. W
grows with m, so the bound is the smallest m with W(m) >= 1 / delta (Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", 2024; the bets are constant, so that sums
suffice).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

__all__ = ["BET_WEIGHTS", "Floats", "chosen_bets", "log_capital", "mean_upper_bound"]

Floats = npt.NDArray[np.float64]
FACTORS = np.array([0.5, 1.0, 2.0])
BET_WEIGHTS: Floats = np.array([0.2, 0.6, 0.2])
"""The share of the capital on each bet."""


def chosen_bets(mean: float, variance: float, rows: float, delta: float) -> Floats:
    """The bets for x with about this mean and variance, which other rows tell.

    The bound is smallest, about mean + sqrt(2 variance log(1 / delta) / n), for the bet lambda =
    sqrt(2 log(1 / delta) / (n variance)) in 1 + lambda (m - x), that is for theta = lambda / (1 +
    lambda m). Half and twice this lambda are there in case the variance differs.
    """
    spread = max(variance, 0.25 / max(rows, 1.0) ** 2, 1e-12)
    best = math.sqrt(2 * math.log(1 / delta) / (max(rows, 1.0) * spread))
    near = min(max(mean + math.log(1 / delta) / (best * max(rows, 1.0)), 1e-6), 1.0)
    lambdas = FACTORS * best
    return np.asarray(np.minimum(lambdas / (1 + lambdas * near), 0.999))


def log_capital(bets: Floats, sums: npt.ArrayLike, rows: float, m: npt.ArrayLike) -> Floats:
    """log of the capital against a mean of at least m, where `sums` are S of the `bets`.

    `m` may be an array; it is clipped to [0, 1].
    """
    at = np.clip(np.asarray(m, float), 0, 1)[..., None]
    each = np.asarray(sums, float) - rows * np.log1p(-bets * at)
    return np.asarray(scipy.special.logsumexp(each, axis=-1, b=BET_WEIGHTS), float)


def mean_upper_bound(bets: Floats, sums: npt.ArrayLike, rows: float, delta: float) -> float:
    """The smallest m such that "the mean is at most m" is wrong with probability `delta` or less.

    >>> bets = chosen_bets(0.0, 0.0, 100, 0.05)
    >>> round(mean_upper_bound(bets, np.zeros(3), 100, 0.05), 3)
    0.03
    """
    need, low, high = -math.log(delta), 0.0, 1.0
    if not rows or float(log_capital(bets, sums, rows, 1.0)) < need:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        enough = float(log_capital(bets, sums, rows, middle)) >= need
        low, high = (low, middle) if enough else (middle, high)
    return high
