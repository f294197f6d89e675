"""Bounds by betting: how often they are wrong, and that sums of sites are enough."""

from __future__ import annotations

import numpy as np

from fedssca.evaluate.confidence.means import chosen_bets, log_capital, mean_upper_bound

DELTA = 0.1


def sums(bets: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.log1p(-np.multiply.outer(bets, x)).sum(axis=-1))


def test_bounds_are_wrong_in_at_most_delta_of_the_draws() -> None:
    rng, draws = np.random.default_rng(0), 400
    for a, b, rows in ((0.3, 3.0, 60), (5.0, 2.0, 30)):
        mean = a / (a + b)
        variance = mean * (1 - mean) / (a + b + 1)
        bets = chosen_bets(mean, variance, rows, DELTA)
        bounds = [
            mean_upper_bound(bets, sums(bets, x), rows, DELTA)
            for x in rng.beta(a, b, (draws, rows))
        ]
        assert np.mean(np.array(bounds) < mean) <= DELTA
        assert np.median(bounds) - mean < 3.5 * np.sqrt(variance / rows)


def test_bets_of_a_wrong_variance_are_valid_too() -> None:
    rng, bets = np.random.default_rng(1), chosen_bets(0.5, 1e-4, 40, DELTA)
    wrong = [
        log_capital(bets, sums(bets, x), 40, 0.25) >= -np.log(DELTA)
        for x in rng.beta(1, 3, (1000, 40))
    ]
    assert np.mean(wrong) <= DELTA


def test_sums_of_two_sites_add_up() -> None:
    x, bets = np.random.default_rng(2).random(50), chosen_bets(0.5, 0.08, 50, 0.05)
    apart = sums(bets, x[:20]) + sums(bets, x[20:])
    assert mean_upper_bound(bets, apart, 50, 0.05) == mean_upper_bound(
        bets, sums(bets, x), 50, 0.05
    )


def test_nothing_is_claimed_without_rows() -> None:
    bets = chosen_bets(0.5, 0.08, 0, 0.05)
    assert mean_upper_bound(bets, np.zeros(3), 0, 0.05) == 1
