"""What is spent: known values, bounds in the right order, the way back from epsilon to noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.privacy.noise.accountant import (
    COARSE,
    Release,
    busiest,
    epsilon_of,
    epsilon_replaced,
    multiplier,
    sigma_of,
)
from fedssca.privacy.noise.ledger import Ledger, joint_epsilon

pytest.importorskip("dp_accounting")
DELTA = 1e-5


def test_the_documented_case() -> None:
    assert epsilon_of((Release(1.0, 1000, 0.01),), DELTA) == pytest.approx(1.828, abs=0.01)
    fixed = (Release(1.0, 1000, 1.0, (100, 10_000)),)
    assert epsilon_replaced(fixed, DELTA) == pytest.approx(21.0, abs=0.2)


def test_known_participation_is_the_gaussian_mechanism() -> None:
    """k rounds with sigma are one with sigma / sqrt(k); sigma = 1, delta = 1e-5 gives 4.377."""
    assert epsilon_of((Release(3.0, 9),), DELTA) == pytest.approx(4.377, abs=1e-3)
    assert epsilon_of((Release(3.0, 4), Release(3.0, 5)), DELTA) == pytest.approx(4.377, abs=1e-3)
    assert epsilon_of((Release(3.0, 0),), DELTA) == 0
    assert sigma_of(4.377, DELTA, 9) == pytest.approx(3.0, rel=1e-3)


def test_releases_of_different_kinds_compose() -> None:
    """Each alone spends less than both, and both spend less than the sum."""
    rounds, evaluations = Release(1.0, 200, 0.02), Release(20.0, 10)
    alone = [epsilon_of((each,), DELTA) for each in (rounds, evaluations)]
    both = epsilon_of((rounds, evaluations), DELTA)
    assert max(alone) < both < sum(alone)
    halves = epsilon_of((rounds._replace(messages=100), Release(1.0, 100, 0.02)), DELTA)
    assert halves == pytest.approx(alone[0], rel=1e-3)


def test_five_messages_about_one_batch_are_one_with_less_noise() -> None:
    """Claimed and true values of probes that share a batch but were counted as if they did not."""
    for rounds, claimed, true in ((99, 1.0, 5.46), (299, 2.0, 7.28), (999, 2.0, 4.90)):
        sigma = {99: 0.9035, 299: 0.8042, 999: 0.9604}[rounds]
        counted = epsilon_of((Release(sigma, rounds + 6, 0.01),), DELTA, COARSE)
        assert counted == pytest.approx(claimed, rel=0.02)
        shared = Release(sigma / math.sqrt(5), 1, 0.01), Release(sigma, rounds + 1, 0.01)
        assert epsilon_of(shared, DELTA, COARSE) == pytest.approx(true, rel=0.03)


def test_a_distance_from_what_is_accounted_for_costs_delta() -> None:
    exact = Release(1.0, 100, 0.02)
    near = epsilon_of((exact._replace(lost=1e-8),), DELTA)
    assert epsilon_of((exact,), DELTA) < near < 1.01 * epsilon_of((exact,), DELTA)
    found = epsilon_of((exact,), DELTA - (1 + math.exp(near)) * 1e-8)
    assert found <= near <= found * (1 + 1e-5)
    unsampled = epsilon_of((exact._replace(rate=1.0),), DELTA)
    useless = epsilon_of((exact._replace(lost=1e-5),), DELTA)
    assert unsampled < useless < 1.3 * unsampled  # then sampling counts nothing
    much = Ledger(0.5, DELTA, "sample", 0.1, 20, evaluations=5, evaluation_sigma=3.0, lost=1e-11)
    assert much.exact() < 200


def test_a_ledger_on_its_way() -> None:
    ledger = Ledger(1.0, DELTA, "sample", 0.01, 1000)
    assert ledger.spent(700) == pytest.approx(
        epsilon_of((Release(1.0, 700, 0.01),), DELTA), rel=0.02
    )
    assert ledger.spent(0) == 0
    said = ledger.report(1000)
    assert said["epsilon"] == ledger.spent(1000) == ledger.exact()
    assert "Poisson" in said["sampling"]
    assert "exact and outside" in said["epsilon_covers"]
    assert ledger.also(50, 0).spent(1000) > said["epsilon"]


def test_calibration_rows_are_other_rows_in_one_run_and_may_be_the_same_in_others() -> None:
    messages = Ledger(4.0, DELTA, "sample", 1.0, 10)
    both = replace(messages, calibrations=1, calibration_sigma=0.7)
    counts = epsilon_of((Release(0.7, 1),), DELTA)
    assert both.of_calibration() == both.exact() == pytest.approx(counts)
    assert both.spent(9) < messages.exact() < both.exact()  # counts are released at the end
    quiet = replace(both, calibration_sigma=5.0)
    assert quiet.exact() == messages.exact()
    joint = joint_epsilon([both.spending()])
    assert joint == pytest.approx(epsilon_of((Release(4.0, 10), Release(0.7, 1)), DELTA))
    assert max(counts, messages.exact()) < joint < counts + messages.exact()
    assert both.also(0, 0, resumes=1).exact() == pytest.approx(
        epsilon_of((Release(0.7, 2),), DELTA)
    )
    said = both.report(10)
    assert said["calibration_epsilon"] == said["epsilon"]
    assert "counts of calibration rows" in said["epsilon_covers"]


def test_fixed_batches_have_their_own_bound() -> None:
    fixed = Ledger(2.0, DELTA, "sample", 0.01, 500, batch=(100, 10_000), evaluations=3)
    fixed = Ledger(**{**fixed.__dict__, "evaluation_sigma": 40.0})
    said = fixed.report(500)
    assert said["neighbours"] == "one sample replaced by another one"
    assert said["sampling_rate"] == 0.01
    assert said["epsilon"] == epsilon_replaced(fixed.releases(), DELTA)
    poisson = Ledger(2.0, DELTA, "sample", 0.01, 500)
    assert said["epsilon"] > 3 * poisson.exact()
    # beside other runs, whose neighbours are one sample more or less, sampling counts nothing
    assert epsilon_of(fixed.releases(), DELTA) > said["epsilon"]


def test_counts_in_place_of_chance() -> None:
    uses = busiest([np.array([0, 1]), np.array([2, 3]), np.array([1, 2]), np.array([1, 0])], 4)
    assert uses == (0, 1, 1, 2, 3)
    ledger = Ledger(2.0, DELTA, "client", 1.0, 4, uses, probes=1)
    assert [ledger.count(t) for t in (0, 2, 4, 9)] == [1, 2, 4, 4]
    assert ledger.report(4)["epsilon"] == epsilon_of((Release(2.0, 4),), DELTA)


@pytest.mark.parametrize(("rate", "count"), [(0.05, 200), (1.0, 37)])
def test_epsilon_to_noise_and_back(rate: float, count: int) -> None:
    def spent(sigma: float) -> float:
        return epsilon_of((Release(sigma, count, rate),), DELTA, COARSE)

    assert 0.98 * 2.0 <= spent(multiplier(2.0, spent)) <= 2.0


def test_what_cannot_be() -> None:
    with pytest.raises(UserError, match="more noise than any run bears"):
        multiplier(1.0, lambda sigma: math.inf)
