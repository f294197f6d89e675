"""What is spent: known values, bounds in the right order, the way back from epsilon to noise."""

from __future__ import annotations

import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.privacy.noise.accountant import (
    Ledger,
    busiest,
    epsilon,
    multiplier,
    without_replacement,
)

pytest.importorskip("dp_accounting")


def test_the_documented_case() -> None:
    assert epsilon(1.0, 1e-5, 0.01, 1000) == pytest.approx(1.828, abs=0.01)


def test_known_participation_is_the_gaussian_mechanism() -> None:
    """k rounds with sigma are one with sigma / sqrt(k); sigma = 1, delta = 1e-5 gives 4.377."""
    assert epsilon(3.0, 1e-5, 1.0, 9) == pytest.approx(4.377, abs=1e-3)
    assert epsilon(3.0, 1e-5, 1.0, 0) == 0


def test_a_ledger_on_its_way() -> None:
    ledger = Ledger(1.0, 1e-5, "sample", 0.01, 0.01, 1000, None, (100, 10_000))
    on_the_way = ledger.spent(700)
    assert on_the_way == pytest.approx(epsilon(1.0, 1e-5, 0.01, 700), rel=0.02)
    assert ledger.spent(0) == 0
    said = ledger.report(1000)
    assert said["epsilon"] == ledger.spent(1000) == epsilon(1.0, 1e-5, 0.01, 1000)
    assert said["epsilon_without_replacement"] > said["epsilon"]
    assert "without replacement" in said["assumption"]
    assert ledger.also(50).spent(1000) > said["epsilon"]


def test_counts_in_place_of_chance() -> None:
    uses = busiest([np.array([0, 1]), np.array([2, 3]), np.array([1, 2]), np.array([1, 0])], 4)
    assert uses == (0, 1, 1, 2, 3)
    ledger = Ledger(2.0, 1e-5, "client", 1.0, 0.5, 4, uses, extra=1)
    assert [ledger.count(t) for t in (0, 2, 4, 9)] == [1, 2, 4, 4]
    said = ledger.report(4)
    assert said["epsilon"] == epsilon(2.0, 1e-5, 1.0, 4)
    assert said["epsilon_outside"] <= said["epsilon"]
    assert ledger.planned == 5


@pytest.mark.parametrize(("rate", "count"), [(0.05, 200), (1.0, 37)])
def test_epsilon_to_noise_and_back(rate: float, count: int) -> None:
    sigma = multiplier(2.0, 1e-5, rate, count)
    spent = epsilon(sigma, 1e-5, rate, count)
    assert 0.98 * 2.0 <= spent <= 2.0


def test_what_cannot_be() -> None:
    with pytest.raises(UserError, match="without a round"):
        multiplier(1.0, 1e-5, 0.1, 0)


def test_replacing_needs_more_than_leaving_out() -> None:
    assert without_replacement(2.0, 1e-5, 100, 10_000, 500) > epsilon(2.0, 1e-5, 0.01, 500)
