"""Tests of gaps between two groups: their size is computed exactly, draw by draw."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from fedssca.evaluate.confidence.gaps import BetSums, mean_gap_log_capital, rate_gap_p_value
from fedssca.evaluate.confidence.means import chosen_bets


@pytest.mark.parametrize(("n", "m", "limit"), [(15, 20, 0.1), (25, 8, 0.0), (12, 12, -0.3)])
def test_a_wrong_claim_passes_with_probability_delta_at_most(n: int, m: int, limit: float) -> None:
    p_values = np.array(
        [[rate_gap_p_value((k, n), (j, m), limit) for j in range(m + 1)] for k in range(n + 1)]
    )
    for q in np.linspace(max(0.0, -limit), min(1.0, 1 - limit), 15):
        first = binom.pmf(np.arange(n + 1), n, q + limit)
        second = binom.pmf(np.arange(m + 1), m, q)
        assert np.outer(first, second)[p_values <= 0.05].sum() <= 0.05


def test_a_clear_gap_is_seen_and_trivial_claims_hold() -> None:
    assert rate_gap_p_value((100, 1000), (100, 1000), 0.05) < 5e-3
    assert rate_gap_p_value((150, 1000), (100, 1000), 0.05) > 0.3
    assert rate_gap_p_value((9, 9), (0, 9), 1.0) == 0
    assert rate_gap_p_value((0, 9), (9, 9), -1.0) == 1
    assert rate_gap_p_value((0, 0), (1, 9), 0.5) == 1


def test_gaps_of_means_are_wrong_in_at_most_delta_of_the_draws() -> None:
    rng, delta, rows = np.random.default_rng(0), 0.1, (40, 60)
    bets = [chosen_bets(m, 0.02, n, delta) for m, n in ((0.35, 40), (0.75, 60))]
    wrong = 0
    for _ in range(300):
        x, y = rng.beta(3.5, 6.5, rows[0]), rng.beta(2.5, 7.5, rows[1])  # means .35 and .25
        high = BetSums(bets[0], np.log1p(-np.outer(bets[0], x)).sum(axis=1), rows[0])
        low = BetSums(bets[1], np.log1p(-np.outer(bets[1], 1 - y)).sum(axis=1), rows[1])
        wrong += mean_gap_log_capital(high, low, 0.1) >= -np.log(delta)
        assert mean_gap_log_capital(high, low, 0.6) > -np.log(delta)
    assert wrong <= 300 * delta
