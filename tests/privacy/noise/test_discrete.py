"""The discrete Gaussian: exact probabilities, its distance from the rounded one, its grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedssca.errors import UserError

pytest.importorskip("cryptography")
from fedssca.privacy.noise.discrete import STEPS, Entropy, Grid, discrete_gaussian, off_grid

DRAWN = 100_000


@pytest.mark.parametrize("deviation", [1, 3, 20])
def test_the_probabilities_are_those_of_the_definition(deviation: int) -> None:
    drawn = discrete_gaussian(Entropy(), deviation, DRAWN)
    z = np.arange(-8 * deviation, 8 * deviation + 1)
    p = np.exp(-(z**2) / (2 * deviation**2))
    p /= p.sum()
    often = p * DRAWN > 10
    counts = np.array([(drawn == value).sum() for value in z[often]])
    rest = DRAWN - counts.sum()
    found = stats.chisquare([*counts, rest], DRAWN * np.array([*p[often], p[~often].sum()]))
    assert found.pvalue > 1e-6


def test_a_large_deviation_is_normal() -> None:
    deviation = int(STEPS) + 12_345
    drawn = discrete_gaussian(Entropy(), deviation, 20_000) / deviation
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert not len(discrete_gaussian(Entropy(), deviation, 0))
    with pytest.raises(ValueError, match="outside"):
        discrete_gaussian(Entropy(), 2**27, 1)


@pytest.mark.parametrize("s", [2.0, 4.0, 8.0, 16.0])
def test_the_distance_from_a_rounded_gaussian_is_below_its_bound(s: float) -> None:
    z = np.arange(-40 * s, 40 * s + 1)
    p = np.exp(-(z**2) / (2 * s**2))
    rounded = stats.norm.cdf((z + 0.5) / s) - stats.norm.cdf((z - 0.5) / s)
    distance = np.abs(p / p.sum() - rounded).sum() / 2
    assert 0.2 * off_grid(1, 1, s) < distance < off_grid(1, 1, s)


def test_every_number_is_on_the_grid_and_sums_stay_there() -> None:
    grid, entropy = Grid.of(1e-3, 2.0, 100), Entropy()
    assert np.log2(grid.step) % 1 == 0
    assert grid.deviation * grid.step >= 1e-3 + 2.0 * 10 * grid.step
    one, other = (grid.noised(np.full(100, x), entropy) for x in (0.1234567, -3.3))
    for values in (one, other, one + other):
        assert (values / grid.step == np.rint(values / grid.step)).all()
    assert one.std() == pytest.approx(1e-3, rel=0.4)
    with pytest.raises(UserError, match="too small for the sum"):
        Grid.of(1e-9, 2.0, 100, finest=2.0**-40)
    with pytest.raises(UserError, match="too large, or not finite"):
        grid.noised(np.array([np.inf]), entropy)


def test_a_poisson_sample_takes_every_row_independently() -> None:
    entropy, rows, mean = Entropy(), 40, 10
    drawn = np.zeros((4000, rows), bool)
    for sample in drawn:
        sample[entropy.chosen(rows, mean)] = True
    sizes = np.bincount(drawn.sum(1), minlength=rows + 1)
    expected = 4000 * stats.binom.pmf(np.arange(rows + 1), rows, mean / rows)
    often = expected > 5
    found = stats.chisquare(
        [*sizes[often], sizes[~often].sum()], [*expected[often], expected[~often].sum()]
    )
    assert found.pvalue > 1e-6
    together = np.cov(drawn[:, :20].T.astype(float))[~np.eye(20, dtype=bool)]
    assert np.abs(together).max() < 6 * 0.25 * 0.75 / np.sqrt(4000)
    assert np.array_equal(np.sort(entropy.permutation(50)), np.arange(50))
