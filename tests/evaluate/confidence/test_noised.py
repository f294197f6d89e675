"""Claims on noised counts: how often false ones pass, and that the worst counts are the corners."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from fedssca.evaluate.confidence.claims import Claim, claim_bound, claim_p_value
from fedssca.evaluate.confidence.counts import counts_added
from fedssca.evaluate.confidence.evidence import Evidence
from fedssca.evaluate.confidence.noised import Box, box_of, gap_of_boxes, mean_of_box, radius
from fedssca.evaluate.confidence.plain import evidence_of, plain_evidence
from fedssca.privacy.noise.discrete import Entropy, Grid

DELTA, NOISE, DRAWS = 0.1, 4.0, 400
MOST_FALSE = int(binom.ppf(0.9999, DRAWS, DELTA))
"""So many of all draws are wrong with a probability of at most 1e-4, if 1 of 10 is allowed to."""


def noised(
    weights: list[float], hits: np.ndarray, rows: np.ndarray, noise: np.ndarray, *, counted: bool
) -> Evidence:
    """Noise on hits and misses of every mean."""
    nothing, top = np.zeros((len(weights), 2, 3)), hits + noise[:, 0]
    all_rows = top + (rows - hits) + noise[:, 1]
    return Evidence(np.array(weights), top, all_rows, nothing, nothing, 1.0, counted, NOISE)


def discrete(count: int) -> np.ndarray:
    """Noise of two sites, from the generator that sites use."""
    one = Grid.of(NOISE / np.sqrt(2), 1.0, 1)
    entropy = Entropy()
    return one.noised(np.zeros(count), entropy) + one.noised(np.zeros(count), entropy)


@pytest.mark.parametrize("kind", ["rate", "gap", "whole", "loss"])
def test_a_false_claim_passes_as_seldom_as_it_may(kind: str) -> None:
    """The truth is on the limit, so that every claim that passes is false."""
    rng = np.random.default_rng(3)
    weights = [1.0] if kind in ("rate", "loss") else [1.0, -1.0]
    noise = discrete(2 * len(weights) * DRAWS).reshape(DRAWS, len(weights), 2)
    passed, bounds = 0, []
    for each in noise:
        if kind == "whole":  # 0.5 - (0.4 * 0.5 + 0.6 * 0.3)
            claim = Claim(1.0, 0.12, DELTA, whole=True)
            inside = rng.random(900) < 0.4
            hit = rng.random(900) < np.where(inside, 0.5, 0.3)
            hits = np.array([(hit & inside).sum(), hit.sum()], float)
            rows = np.array([inside.sum(), 900.0])
            each = each + np.array([[0.0, 0.0], each[0]])
        elif kind == "gap":
            claim, rows = Claim(1.0, 0.2, DELTA), np.array([300.0, 500.0])
            hits = rng.binomial(rows.astype(int), [0.5, 0.3]).astype(float)
        else:
            claim = Claim(1.0, 0.1, DELTA, positive=kind == "loss")
            rows = np.array([500.0])
            hits = np.array([float(rng.binomial(500, 0.1))])
            if kind == "loss":
                hits = np.array([rng.beta(0.5, 4.5, 500).sum()])
        seen = noised(weights, hits, rows, each, counted=kind != "loss")
        passed += claim_p_value(claim, seen) <= DELTA
        if len(bounds) < 5:
            bounds.append(claim_bound(claim, seen))
    assert passed <= MOST_FALSE
    assert max(bounds) < 3 * claim.limit + 0.1  # and the bounds say something


def test_the_worst_counts_of_a_box_are_at_its_corners() -> None:
    box, other = box_of(9.3, 40.2, 3.5, counted=True), box_of(20.0, 30.0, 2.5, counted=True)
    ends = [range(round(a), round(b) + 1) for a, b in (box[:2], box[2:])]
    inside = [Box(k, k, m, m) for k, m in itertools.product(*ends)]
    for counted in (True, False):
        worst = max(mean_of_box(each, 0.4, counted=counted) for each in inside)
        assert mean_of_box(box, 0.4, counted=counted) == pytest.approx(worst)
    second = [Box(k, k, m, m) for k in range(18, 23) for m in range(28, 33)]
    gaps = [gap_of_boxes(a, b, 0.3, DELTA) for a in inside[::5] for b in second[::3]]
    assert gap_of_boxes(box, other, 0.3, DELTA) >= max(gaps)
    assert gap_of_boxes(other, box, 0.9, DELTA) < DELTA


def test_a_row_adds_at_most_one_to_the_counts_of_a_quantity() -> None:
    """Also if it is in both means, and of whatever size its value is."""
    rng = np.random.default_rng(4)
    rows = 30
    batch = {"client": jnp.zeros(rows, jnp.int32), "weight": jnp.ones(rows)}
    top = rng.normal(scale=3, size=(2, rows))
    top[0, 0] = np.nan
    group = (rng.random(rows) < 0.5).astype(float)
    means = [(-1.0, jnp.asarray(top[1]), jnp.ones(rows)), (1.0, jnp.asarray(top[0]), group)]

    def counts(weight: np.ndarray) -> np.ndarray:
        found = counts_added({"gap": means}, batch | {"weight": jnp.asarray(weight)}, {"gap": 2.0})
        return np.asarray(found["gap"][0])

    everything = counts(np.ones(rows))
    assert everything.sum() == pytest.approx(rows, rel=1e-5)  # each row is in one mean
    assert everything[0].sum() == pytest.approx(group.sum(), rel=1e-5)  # the group comes first
    for row in range(rows):
        without = counts((np.arange(rows) != row).astype(float))
        assert np.linalg.norm(everything - without) <= 1 + 1e-4


def test_noise_stays_within_its_radius_and_evidence_can_be_written() -> None:
    r = radius(NOISE, 1, 0.04)
    assert (np.abs(discrete(2000)) > r).mean() <= 0.02  # one number of two, both sides
    weights = [1.0, -1.0]
    hits, rows = np.array([3.0, 5.0]), np.array([30.0, 60.0])
    seen = noised(weights, hits, rows, np.full((2, 2), 0.25), counted=True)
    again = evidence_of(plain_evidence(seen))
    assert again.noise == NOISE
    assert claim_p_value(Claim(1.0, 0.3, DELTA), again) == claim_p_value(
        Claim(1.0, 0.3, DELTA), seen
    )
