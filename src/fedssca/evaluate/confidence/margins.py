"""Before training: what can be certified at all, and by how much limits must be tightened for it.

A claim about new rows needs room between the quantity of the model on training rows and its limit.
With e the standard error of the quantity on calibration rows, e' that on training rows, and z the
quantile of the normal distribution,

    margin = z_{1 - delta} e + sqrt(e^2 + e'^2)

(for means 1.5 z: a bound by betting is wider than z e), of which the first part is what the test
needs. The second makes it pass in most draws: it is the standard error of the difference between
both kinds of rows. For a single rate the first part is exact: the limit less the largest k / n that
passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from fedssca.evaluate.confidence.claims import Claim, ClaimResult, claim_bound, claim_p_value
from fedssca.evaluate.confidence.evidence import Evidence
from fedssca.evaluate.confidence.means import Floats, mean_upper_bound
from fedssca.evaluate.confidence.rates import rate_p_value, rate_upper_bound, rows_needed
from fedssca.evaluate.estimate import Estimate
from fedssca.problem.limits import StatedLimit, limit_words

__all__ = [
    "best_possible",
    "best_with_noise",
    "margin_of",
    "noised_margin",
    "room_of",
    "what_is_missing",
]

MOST = 0.9
"""The largest part of a limit by which it is tightened."""
TYPICAL = {True: 0.5, False: 0.2}
"""Where the means of a gap lie if nothing is known of them: rates, and losses over their clip."""

BETTING = 1.5
"""How much wider a bound by betting is than one by the normal distribution."""


def margin_of(
    limit: StatedLimit, rows: Floats, train: Estimate | None, delta: float, clip: float
) -> float:
    """By how much the quantity should keep away from its limit, in its own unit.

    `rows` are the numbers of calibration rows of its means, `train` has the quantity on training
    rows; without it the largest variance counts.
    """
    size = clip if limit.positive else 1.0
    spread, apart = np.full(len(rows), 0.25 * size**2), 0.0
    if train is not None and train.value is not None:
        top, bottom, squares = train.sums.T
        spread = np.maximum(squares / bottom - (top / bottom) ** 2, 1.0 / bottom * size**2 * 0.25)
        apart = float((spread / bottom).sum())
    error = math.sqrt(float((spread / np.maximum(rows, 1)).sum()))
    z = float(scipy.special.ndtri(1 - delta)) * (BETTING if limit.positive else 1.0)
    need = z * error
    if len(rows) == 1 and not limit.positive:
        need = max(_exact(limit, int(rows[0]), delta), 0.0)
    return need + math.sqrt(error**2 + apart)


def _exact(limit: StatedLimit, rows: int, delta: float) -> float:
    """limit - k / n for the largest k that passes; the whole limit if none does."""
    ceiling = limit.high if limit.high is not None else 1 - (limit.low or 0.0)
    low, high = -1, rows
    while high - low > 1:
        middle = (low + high) // 2
        passes = rate_p_value(middle, rows, ceiling) <= delta
        low, high = (middle, high) if passes else (low, middle)
    return ceiling - max(low, 0) / max(rows, 1)


def best_possible(limit: StatedLimit, rows: Floats, delta: float, clip: float) -> str:
    """Why no model at all can be certified with so few rows; empty if one can."""
    level = f"{100 * (1 - delta):g} %"
    words = limit_words(limit.low, limit.high)
    if not (rows > 0).all():
        return f"{limit.title}: no calibration row counts for it, so it cannot be certified"
    if len(rows) != 1:
        return ""
    n = int(rows[0])
    if limit.positive:
        assert limit.high is not None
        zero = np.full(3, 0.5)
        least = clip * mean_upper_bound(zero, np.zeros(3), n, delta)
        if least <= limit.high:
            return ""
        return (
            f"{limit.title} {words}: {n:,} calibration rows certify at best {least:.3g} at "
            f"{level}, even if every loss were 0; set aside more rows (data.calibration_fraction)"
        )
    ceiling = limit.high if limit.high is not None else 1 - (limit.low or 0.0)
    least = rate_upper_bound(0, n, delta)
    if least <= ceiling:
        return ""
    best = f"≤ {least:.3g}" if limit.high is not None else f"≥ {1 - least:.3g}"
    return (
        f"{limit.title} {words}: {n:,} calibration rows count for it, and even without a single "
        f"error they certify only {best} at {level}; {rows_needed(ceiling, delta):,} such rows are "
        "needed (data.calibration_fraction)"
    )


def room_of(limit: StatedLimit) -> float:
    """Nearly all of the room between the limit and the best value that there can be."""
    if limit.low is not None and limit.high is not None:
        return MOST * (limit.high - limit.low) / 2
    return MOST * (limit.high if limit.high is not None else 1 - (limit.low or 0.0))


def _supposed(
    limit: StatedLimit, claim: Claim, rows: Floats, noise: float, clip: float, at: float
) -> Evidence:
    """Counts with sign * quantity = at, over the clip, on so many rows of each mean."""
    means = np.array([claim.sign * at])
    weights = np.ones(1)
    if len(rows) == 2:
        middle, weights = TYPICAL[limit.rate], np.array([1.0, -1.0])
        means = np.clip(middle + weights * claim.sign * at / 2, 0, 1)
    top, nothing = means * rows, np.zeros((len(rows), 2, 3))
    return Evidence(weights, top, rows, nothing, nothing, clip, limit.rate, noise)


def noised_margin(
    limit: StatedLimit, claim: Claim, rows: Floats, noise: float, clip: float
) -> float:
    """By how much training should keep away from a limit whose claim is tested under noise.

    It is the room that the test needs on so many rows, and one standard deviation of the tested
    value; 0 if no value passes the test, so that nothing is gained by keeping away.
    """
    size = clip if limit.positive else 1.0
    best = (0.0 if claim.sign > 0 else -1.0) if len(rows) == 1 else 0.0
    ceiling = claim.limit / size

    def passes(at: float) -> bool:
        seen = _supposed(limit, claim, rows, noise, size, at)
        return claim_p_value(claim, seen) <= claim.delta

    if best >= ceiling or not passes(best):
        return 0.0
    low, high = best, ceiling
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    means = _supposed(limit, claim, rows, noise, size, low)
    p = means.top / means.rows
    error = math.sqrt(float((p * (1 - p) / rows + 2 * (noise / rows) ** 2).sum()))
    return min(size * (ceiling - low + error), room_of(limit))


def best_with_noise(limit: StatedLimit, claim: Claim, rows: Floats, noise: float) -> str:
    """Why no model at all can be certified on counts with so much noise; empty if one can."""
    if len(rows) != 1:
        return ""
    best = 0.0 if claim.sign > 0 else -1.0
    seen = _supposed(limit, claim, rows, noise, 1.0, best)._replace(counted=True)
    least = claim_bound(claim, seen)
    if least <= claim.limit or limit.positive:
        return ""
    words = f"≤ {least:.3g}" if claim.sign > 0 else f"≥ {-least:.3g}"
    return (
        f"{limit.title} {limit_words(limit.low, limit.high)}: about {round(float(rows[0])):,} "
        f"calibration rows count for it, and with noise of standard deviation {noise:.3g} on their "
        f"counts they certify at best {words} at {100 * (1 - claim.delta):g} %, even without a "
        "single error; set aside more rows (data.calibration_fraction), or use a larger epsilon"
    )


def what_is_missing(limit: StatedLimit, claims: Sequence[ClaimResult]) -> list[str]:
    """For each claim of a limit that did not pass: its bound, and the rows that it would take."""
    lines = []
    for result in claims:
        if result.passed or result.constraint not in limit.constraints:
            continue
        seen, claim = result.seen, result.claim
        where = limit.title if result.site is None else f"{limit.title}, at site {result.site + 1}"
        value = seen.value
        if not result.known:
            why = "not all of its values are 0 or 1"
            if seen.noise:
                why = "under noise nobody looks whether all of its values are 0 or 1"
            lines.append(
                f"not certified: {where}: {why}, and nothing is known of their range on new rows"
            )
            continue
        if value is None:
            lines.append(f"not certified: {where}: no calibration row counts for it")
            continue
        reached = claim.sign * result.bound
        room = claim.limit - claim.sign * value
        text = (
            f"not certified: {where}: {value:.4g} on {int(seen.rows.sum()):,} calibration rows; at "
            f"{100 * (1 - claim.delta):g} % it is certain only that it is "
            f"{'at most' if claim.sign > 0 else 'at least'} {reached:.4g}"
        )
        width = result.bound - claim.sign * value
        if room > width / 30:
            rows = math.ceil((width / room) ** 2 * seen.rows.sum())
            text += f"; about {rows:,} such rows would do for a model with this value"
        else:
            text += "; more rows alone would not help: this value is on its limit or outside"
        lines.append(text)
    return lines
