"""Quantities from sums, and their intervals, against published and exact values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from fedssca.evaluate.estimate import Estimate, clopper_pearson


@pytest.mark.parametrize(("hits", "rows"), [(0, 10), (3, 10), (10, 10), (2, 71), (2252, 3846)])
@pytest.mark.parametrize("level", [0.95, 0.975])
def test_the_interval_of_a_rate_is_the_exact_one(hits: int, rows: int, level: float) -> None:
    other = binomtest(hits, rows).proportion_ci(level, method="exact")
    assert clopper_pearson(hits, rows, level) == pytest.approx((other.low, other.high), abs=1e-12)


def test_the_interval_covers_with_at_least_its_level() -> None:
    ends = np.array([clopper_pearson(k, 20) for k in range(21)])
    for p in np.linspace(0.01, 0.99, 50):
        inside = (ends[:, 0] <= p) & (p <= ends[:, 1])
        assert binom.pmf(np.arange(21), 20, p)[inside].sum() >= 0.95


def test_a_gap_by_hand() -> None:
    gap = Estimate((1.0, -1.0), np.array([[12.0, 60, 12], [9, 90, 9]]))
    assert gap.value == pytest.approx(12 / 60 - 9 / 90)
    assert gap.counts == [[12, 60], [9, 90]]
    interval, kind = gap.interval() or ([], "")
    (a, b), (c, d) = clopper_pearson(12, 60, 0.975), clopper_pearson(9, 90, 0.975)
    assert interval == pytest.approx([a - d, b - c])
    assert kind == "Clopper-Pearson"


def test_a_mean_by_hand() -> None:
    x = np.array([0.1, 0.4, 0.7, 1.2])
    mean = Estimate((1.0,), np.array([[x.sum(), 4, (x * x).sum()]]))
    half = 1.959963985 * x.std(ddof=1) / 2
    interval, kind = mean.interval() or ([], "")
    assert mean.value == pytest.approx(0.6)
    assert interval == pytest.approx([0.6 - half, 0.6 + half])
    assert kind == "normal approximation"
    assert mean.counts == [[pytest.approx(2.4), 4.0]]


def test_without_rows_there_is_no_value_and_from_one_no_interval_of_a_mean() -> None:
    empty = Estimate((1.0, -1.0), np.array([[0.0, 0, 0], [3, 5, 3]]))
    assert empty.value is None
    assert empty.interval() is None
    assert Estimate((1.0,), np.array([[0.3, 1, 0.09]])).interval() is None


def test_counts_that_were_added_up_in_secret_are_still_counts() -> None:
    nearly = Estimate((1.0,), np.array([[12.0000004, 59.9999998, 12.0000001]]))
    assert nearly.counts == [[12, 60]]
