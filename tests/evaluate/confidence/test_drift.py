"""The test for drift: false alarms as rare as stated, and alarms where the promise is broken."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedssca.evaluate.confidence.claims import Claim
from fedssca.evaluate.confidence.drift import WatchedRows, begin_watch, watch_rows

Array = np.ndarray
ALPHA = 0.05


def alarm(claim: Claim, rows: WatchedRows, clip: float = 1.0) -> int | None:
    return watch_rows(claim, clip, begin_watch(claim, rows.weights, clip), rows, ALPHA)[1]


def one(x: Array, weight: float = 1.0) -> WatchedRows:
    return WatchedRows(np.array([weight]), x[None], np.ones((1, len(x)), bool))


def two(x: Array, group: Array, whole: bool = False) -> WatchedRows:
    other = np.ones_like(group) if whole else ~group
    return WatchedRows(np.array([1.0, -1.0]), np.stack([x, x]), np.stack([group, other]))


def allowed(streams: int) -> float:
    """The largest share of false alarms that chance explains, at three standard errors."""
    return ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / streams)


@pytest.mark.parametrize(("sign", "rate"), [(1.0, 0.02), (1.0, 0.2), (-1.0, 0.9)])
def test_a_rate_on_its_limit_raises_few_alarms(sign: float, rate: float) -> None:
    rng, streams = np.random.default_rng(1), 400
    claim = Claim(sign, sign * rate, 0.05)
    found = [alarm(claim, one((rng.random(800) < rate) * 1.0)) for _ in range(streams)]
    assert np.mean([at is not None for at in found]) <= allowed(streams)


def test_a_mean_on_its_limit_raises_few_alarms() -> None:
    rng, streams = np.random.default_rng(2), 400
    claim = Claim(1.0, 5 * 1 / 8, 0.05)  # losses are clipped to 5; Beta(1, 7) has the mean 1 / 8
    found = [alarm(claim, one(rng.beta(1, 7, 500)), clip=5.0) for _ in range(streams)]
    assert np.mean([at is not None for at in found]) <= allowed(streams)


@pytest.mark.parametrize("whole", [False, True])
def test_a_gap_on_its_limit_raises_few_alarms(whole: bool) -> None:
    rng, streams, share = np.random.default_rng(3), 20 if whole else 60, 0.4
    far = 0.1 / (1 - share) if whole else 0.1
    found = []
    for _ in range(streams):
        group = rng.random(200) < share
        x = (rng.random(200) < np.where(group, 0.3 + far, 0.3)) * 1.0
        found.append(alarm(Claim(1.0, 0.1, 0.05, whole), two(x, group, whole)))
    assert np.mean([at is not None for at in found]) <= allowed(streams)


def test_drift_is_found_soon_after_it_begins() -> None:
    rng = np.random.default_rng(4)
    x = (rng.random(1500) < np.where(np.arange(1500) < 500, 0.05, 0.25)) * 1.0
    at = alarm(Claim(1.0, 0.1, 0.05), one(x))
    assert at is not None
    assert 500 <= at < 800
    recall = (rng.random(600) < 0.7) * 1.0
    low = alarm(Claim(-1.0, -0.9, 0.05), one(recall))
    assert low is not None
    assert low < 200
    group = rng.random(900) < 0.5
    y = (rng.random(900) < np.where(group, 0.6, 0.3)) * 1.0
    for claim in (Claim(1.0, 0.1, 0.05), Claim(1.0, 0.05, 0.05, True)):
        assert alarm(claim, two(y, group, claim.whole)) is not None
    assert alarm(Claim(-1.0, 0.1, 0.05), two(y, group)) is None
    assert alarm(Claim(-1.0, 0.1, 0.05), two(y, ~group)) is not None


def test_rows_may_come_in_several_calls() -> None:
    rng = np.random.default_rng(5)
    x, claim = (rng.random(600) < 0.3) * 1.0, Claim(1.0, 0.2, 0.05)
    whole, at = watch_rows(claim, 1.0, begin_watch(claim, np.ones(1), 1.0), one(x), ALPHA)
    state, begin, found = begin_watch(claim, np.ones(1), 1.0), 0, None
    for size in (1, 250, 300, 49):
        state, place = watch_rows(claim, 1.0, state, one(x[begin : begin + size]), ALPHA)
        found = begin + place if found is None and place is not None else found
        begin += size
    assert found == at
    np.testing.assert_allclose(state.up.logs, whole.up.logs)


def test_the_capital_by_hand() -> None:
    """Rows x = 1 and x = 0 against a rate of at most 1 / 2: half is set at first."""
    claim = Claim(1.0, 0.5, 0.05)
    state, _ = watch_rows(
        claim, 1.0, begin_watch(claim, np.ones(1), 1.0), one(np.array([1.0, 0.0])), ALPHA
    )
    bets = 0.05 * (1.8 / 0.05) ** np.linspace(0, 1, 8)
    rest = 0.5 / math.log2(3)
    held = (0.5 * (1 + bets / 2) + (0.5 - rest)) * (1 - bets / 2)
    expected = math.log(rest + np.mean(held))
    assert float(state.log_capital()) == pytest.approx(expected)
