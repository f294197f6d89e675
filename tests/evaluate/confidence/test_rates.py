"""Exact tests of one rate, against the binomial distribution itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from fedssca.evaluate.confidence.rates import (
    lower_tail,
    rate_p_value,
    rate_upper_bound,
    rows_needed,
)


@pytest.mark.parametrize("rows", [1, 12, 150])
@pytest.mark.parametrize("limit", [0.02, 0.3, 0.9])
def test_a_wrong_claim_passes_with_probability_delta_at_most(rows: int, limit: float) -> None:
    hits = np.arange(rows + 1)
    passed = np.array([rate_p_value(int(k), rows, limit) <= 0.05 for k in hits])
    assert binom.pmf(hits, rows, limit)[passed].sum() <= 0.05


def test_rows_of_sites_with_different_rates_are_covered() -> None:
    """Fixed numbers of rows of two sites, whose mean rate is on the limit (Poisson binomial)."""
    rows, rates = 20, (0.0, 0.4)
    found = np.convolve(*(binom.pmf(np.arange(rows + 1), rows, rate) for rate in rates))
    for count in range(2 * rows + 1):
        assert found[: count + 1].sum() <= lower_tail(count, 2 * rows, 0.2) + 1e-12


def test_the_bound_is_where_the_test_turns() -> None:
    for hits, rows in ((0, 42), (3, 60), (60, 60)):
        bound = rate_upper_bound(hits, rows, 0.05)
        assert bound == 1 or rate_p_value(hits, rows, bound + 1e-9) <= 0.05
        assert rate_p_value(hits, rows, bound - 1e-6) > 0.05


def test_the_fewest_rows_that_can_certify() -> None:
    assert rows_needed(0.02, 0.05) == 149
    assert rate_upper_bound(0, 149, 0.05) <= 0.02 < rate_upper_bound(0, 148, 0.05)
    assert rate_upper_bound(0, 42, 0.05) == pytest.approx(0.0688, abs=1e-4)
