"""The test of one claim about new rows: sum_j a_j p_j <= U, from the evidence of calibration rows.

    one rate                      the tail of the binomial distribution (`rates`)
    one mean                      betting (`means`)
    a group against another       `gaps`
    a group against all rows      with pi the share of the group, p_group - p_all equals
                                  (1 - pi) (p_group - p_rest). A bound of pi costs a share of the
                                  probability of error, and the rest is a gap of two groups

A claim quantity >= L is the claim -quantity <= -L. Where counts carry noise, the worst counts that
it can have hidden are tested (`noised`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy

from fedssca.evaluate.confidence.evidence import Evidence
from fedssca.evaluate.confidence.gaps import BetSums, mean_gap_log_capital, rate_gap_p_value
from fedssca.evaluate.confidence.means import Floats, log_capital
from fedssca.evaluate.confidence.noised import (
    NOISE,
    Box,
    box_of,
    gap_of_boxes,
    mean_of_box,
    radius,
    share_of_boxes,
)
from fedssca.evaluate.confidence.rates import rate_p_value

__all__ = ["Claim", "ClaimResult", "claim_bound", "claim_p_value", "known_range"]

SHARE = 0.05
"""The part of the probability of error that the share of a group costs."""
ITERATIONS = 24


class Claim(NamedTuple):
    """quantity <= limit, or -quantity <= limit with `sign` -1."""

    sign: float
    limit: float
    delta: float
    """The probability of error that is allowed."""
    whole: bool = False
    """What is subtracted is the mean over all rows, the group's own among them."""
    positive: bool = False
    """The values are at least 0, and larger ones than the clip count as the clip."""


def claim_p_value(claim: Claim, seen: Evidence) -> float:
    """The p-value of a claim; 1 if it cannot be tested."""
    signs, limit = claim.sign * seen.weights, claim.limit / seen.clip
    if not (seen.rows > 0).all() or not np.all(np.abs(signs) == 1):
        return 1.0
    if not known_range(claim, seen) or len(signs) > 2 or (len(signs) == 2 and signs.sum() != 0):
        return 1.0
    if seen.noise:
        return _of_noised(claim, seen, signs, limit)
    if len(signs) == 1:
        return _of_one(seen, 0, signs[0], limit)
    if not claim.whole:
        high = int(np.argmax(signs))
        return _of_two(_mean(seen, high), _mean(seen, 1 - high), limit, claim.delta)
    group, everything = (0, 1) if seen.weights[0] > 0 else (1, 0)
    rest = _rest(_mean(seen, everything), _mean(seen, group))
    if rest.rows <= 0:
        return 1.0
    n, total, beta = seen.rows[group], seen.rows[everything], SHARE * claim.delta
    ends = scipy.special.betaincinv((n, n + 1), (total - n + 1, total - n), (beta, 1 - beta))
    share = float(ends[0] if limit >= 0 else ends[1])  # the end at which the limit is nearest
    pair = (_mean(seen, group), rest) if signs[group] > 0 else (rest, _mean(seen, group))
    return min(1.0, beta + _of_two(*pair, limit / (1 - share), claim.delta))


def known_range(claim: Claim, seen: Evidence) -> bool:
    """Whether the values of single rows are known to lie between 0 and 1, or 0 and the clip.

    A function of the user is taken for a rate if all of its values are 0 or 1. Of other functions
    nobody knows how large they may be on new rows, so nothing can be said of their means.
    """
    return seen.counted or claim.positive


def claim_bound(claim: Claim, seen: Evidence) -> float:
    """The smallest limit for which the claim holds with its probability of error; or infinity."""
    if not known_range(claim, seen):
        return math.inf
    low, high = (0.0, 1.0) if len(seen.weights) == 1 else (-1.0, 1.0)
    if len(seen.weights) == 1 and claim.sign * seen.weights[0] < 0:
        low, high = -1.0, 0.0
    for _ in range(ITERATIONS if len(seen.weights) == 1 else ITERATIONS // 2):
        middle = (low + high) / 2
        passed = claim_p_value(claim._replace(limit=middle * seen.clip), seen) <= claim.delta
        low, high = (low, middle) if passed else (middle, high)
    return high * seen.clip


class ClaimResult(NamedTuple):
    """One claim and its test."""

    constraint: int
    """m, from 0."""
    site: int | None
    """The site whose rows it is about; None: the rows of all sites."""
    claim: Claim
    p_value: float
    seen: Evidence

    @property
    def passed(self) -> bool:
        """The claim may be made."""
        return self.p_value <= self.claim.delta

    @property
    def known(self) -> bool:
        """The range of the values is known, so that the claim can be tested at all."""
        return known_range(self.claim, self.seen)

    @property
    def bound(self) -> float:
        """The smallest limit for which this claim alone would hold with its confidence."""
        return claim_bound(self.claim, self.seen)


class _Mean(NamedTuple):
    """One of the means of a quantity."""

    top: float
    rows: float
    bets: np.ndarray
    sums: np.ndarray
    counted: bool

    def side(self, down: bool) -> BetSums:
        """The bets on x, or (down) on 1 - x."""
        return BetSums(self.bets[int(down)], self.sums[int(down)], self.rows)


def _mean(seen: Evidence, j: int) -> _Mean:
    return _Mean(float(seen.top[j]), float(seen.rows[j]), seen.bets[j], seen.sums[j], seen.counted)


def _rest(whole: _Mean, part: _Mean) -> _Mean:
    """The mean over the rows of `whole` that are not in `part`; the bets must be the same."""
    return whole._replace(
        top=whole.top - part.top, rows=whole.rows - part.rows, sums=whole.sums - part.sums
    )


def _of_one(seen: Evidence, j: int, sign: float, limit: float) -> float:
    mean = _mean(seen, j)
    if mean.counted:
        hits, rows = round(mean.top), round(mean.rows)
        return (
            rate_p_value(hits, rows, limit)
            if sign > 0
            else rate_p_value(rows - hits, rows, 1 + limit)
        )
    given = mean.side(sign < 0)
    return _e_to_p(float(log_capital(*given, limit if sign > 0 else 1 + limit)))


def _of_two(high: _Mean, low: _Mean, limit: float, delta: float) -> float:
    if high.counted:
        pairs = [(round(mean.top), round(mean.rows)) for mean in (high, low)]
        return rate_gap_p_value(pairs[0], pairs[1], limit, delta)
    return _e_to_p(mean_gap_log_capital(high.side(False), low.side(True), limit))


def _of_noised(claim: Claim, seen: Evidence, signs: Floats, limit: float) -> float:
    """The p-value of a claim for the worst counts that the noise can have hidden."""
    beta = NOISE * claim.delta
    r = radius(seen.noise, len(signs), beta)
    group, other = (0, -1) if seen.weights[0] > 0 else (-1, 0)
    top, rows = seen.top.copy(), seen.rows.copy()
    if claim.whole:
        top[other], rows[other] = top[other] - top[group], rows[other] - rows[group]
    boxes = [
        box_of(float(k), float(n - k), r, counted=seen.counted)
        for k, n in zip(top, rows, strict=True)
    ]
    if len(signs) == 1:
        down = signs[0] < 0
        box, most = (boxes[0].turned(), 1 + limit) if down else (boxes[0], limit)
        return min(1.0, beta + mean_of_box(box, most, counted=seen.counted))
    pair: tuple[Box, Box] = (boxes[0], boxes[1]) if signs[0] > 0 else (boxes[1], boxes[0])
    if claim.whole:
        low, high = share_of_boxes(boxes[group], boxes[other], SHARE * claim.delta)
        share = low if limit >= 0 else high
        beta += SHARE * claim.delta
        limit = limit / (1 - share) if share < 1 else math.copysign(math.inf, limit)
    return min(1.0, beta + gap_of_boxes(*pair, limit, claim.delta))


def _e_to_p(log_e: float) -> float:
    return min(1.0, math.exp(min(-log_e, 0.0)))
