"""A quantity that was measured on rows, and an interval for its value on all rows like them.

A quantity is sum_j a_j p_j, where p_j is a ratio of two sums over rows. Where the numerators are 0
or 1 (rates), p_j = k / n has the exact interval of Clopper and Pearson,

    low = the beta quantile  B(alpha / 2; k, n - k + 1),
    high =                   B(1 - alpha / 2; k + 1, n - k).

Other numerators (losses) have the interval mean -+ z s / sqrt(n) of the normal distribution, which
is approximate. With J ratios each interval is taken at the level 1 - alpha / J, and their ends are
added up with the weights a_j. By the inequality of Bonferroni this holds with at least the level
stated, even if the ratios depend on each other as those of a group and of all rows do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

__all__ = ["LEVEL", "Estimate", "clopper_pearson"]

LEVEL = 0.95
EXACT, APPROXIMATE = "Clopper-Pearson", "normal approximation"
ROUNDING = 1e-6
"""The relative error of sums that were added up in secret or in single precision."""


def clopper_pearson(hits: float, rows: float, level: float = LEVEL) -> tuple[float, float]:
    """The exact interval of a probability of which `hits` of `rows` independent trials are known.

    >>> [round(end, 4) for end in clopper_pearson(0, 10)]
    [0.0, 0.3085]
    """
    tail = (1 - level) / 2
    low = float(scipy.special.betaincinv(hits, rows - hits + 1, tail)) if hits > 0 else 0.0
    high = float(scipy.special.betaincinv(hits + 1, rows - hits, 1 - tail)) if hits < rows else 1.0
    return low, high


class Estimate(NamedTuple):
    """The sum over j of weights[j] * sums[j, 0] / sums[j, 1]."""

    weights: Sequence[float]
    sums: np.ndarray
    """(J, 3): the sums of the numerators, of the denominators and of the squared numerators."""
    root: bool = False
    """The quantity is the square root of that sum, as an RMSE is."""

    @property
    def value(self) -> float | None:
        """The quantity; None if no row counts for one of its ratios."""
        if not (self.sums[:, 1] > 0).all():
            return None
        return self._rooted(float(np.asarray(self.weights) @ (self.sums[:, 0] / self.sums[:, 1])))

    def _rooted(self, value: float) -> float:
        return max(value, 0.0) ** 0.5 if self.root else value

    @property
    def counted(self) -> bool:
        """Every numerator is 0 or 1: then the sum of its squares is the sum itself."""
        top, bottom, squares = self.sums.T
        near = np.maximum(ROUNDING * bottom, 1e-3)
        return bool((np.abs(squares - top) <= near).all() and self._whole(near))

    def _whole(self, near: np.ndarray) -> bool:
        return bool((np.abs(self.sums - np.rint(self.sums)) <= near[:, None]).all())

    @property
    def counts(self) -> list[list[int]] | list[list[float]]:
        """(numerator, denominator) of every ratio; whole numbers where rows were counted."""
        if self.counted:
            return [[int(k), int(n)] for k, n in np.rint(self.sums[:, :2])]
        return [[float(top), float(n)] for top, n in self.sums[:, :2]]

    def interval(self, level: float = LEVEL) -> tuple[list[float], str] | None:
        """The interval and how it was found; None if there are too few rows for one."""
        if self.value is None:
            return None
        each = 1 - (1 - level) / len(self.sums)
        if self.counted:
            ends = [clopper_pearson(k, n, each) for k, n in self.counts]
        elif (self.sums[:, 1] >= 2).all():
            ends = [_normal(*map(float, sums), level=each) for sums in self.sums]
        else:
            return None
        pairs = [
            sorted((a * low, a * high)) for a, (low, high) in zip(self.weights, ends, strict=True)
        ]
        low, high = np.sum(pairs, axis=0)
        ends_shown = [self._rooted(float(low)), self._rooted(float(high))]
        return ends_shown, EXACT if self.counted else APPROXIMATE


def _normal(total: float, rows: float, squares: float, *, level: float) -> tuple[float, float]:
    mean = total / rows
    variance = max(squares / rows - mean * mean, 0.0) * rows / (rows - 1)
    half = float(scipy.special.ndtri((1 + level) / 2)) * (variance / rows) ** 0.5
    return mean - half, mean + half
