"""Does a promise still hold? A test on new rows as they come, whose answer may be read at any time.

The hypothesis is that the limit holds. Somebody bets against it, row after row, and has the capital

    W_t = prod_{i <= t} (1 + lambda (x_i - m)),        0 <= lambda < 1 / m,

against "the mean of x is at most m", for x in [0, 1]. If every row has, given those before it, a
mean of at most m, then W is a supermartingale that starts at 1, and by the inequality of Ville

    P(W_t >= 1 / alpha for some t) <= alpha.

However long and however often one looks, a false alarm has probability alpha at most. Capital that
is divided among several bets lambda, and among several times to begin, is a supermartingale too:
half of it is set before the first row, the rest little by little, so that a population that changes
late is found as well. With w_n the part that is set before the n-th row that counts,

    L_n(lambda) = (L_{n-1}(lambda) + w_n) (1 + lambda (x_n - m)),    W_n = r_n + mean_lambda L_n,

where r_n = 1 / (2 log2(n + 1)) is not set yet after n rows. "The mean is at least m" is "the mean
of 1 - x is at most 1 - m".

**A gap** p - q <= U of two groups: q is not known. [0, 1] is divided into cells. If q lies in
[a, b], then p <= b + U and q >= a, and the product of the capitals against both is a
supermartingale, since a row belongs to one group only. If the gap is kept, the product of the right
cell is large with probability alpha at most; so is the smallest product over all cells.

**A group against all rows**: with pi the share of the group, p_group - p_all equals
(1 - pi) (p_group - p_rest). The share is not known either: cells of pi are beside those of q, and a
third factor is the capital against pi in [c, d], the average of the two against pi <= d and
against pi >= c. First it is seen whether a row is in the group, then its value.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedssca.evaluate.confidence.claims import Claim
from fedssca.evaluate.confidence.means import Floats

__all__ = ["BetLogs", "WatchState", "WatchedRows", "begin_watch", "watch_rows"]

BETS = 8
CELLS = 128
"""The number of parts into which the interval of an unknown mean is divided."""
SHARES = 10
"""The same for the unknown share of a group; there are half as many of the mean then."""
SMALLEST = 0.05
"""The smallest bet lambda."""
LARGEST = 0.9
"""The largest bet, as a share of 1 / m."""
NOTHING = -1e9
"""log of no capital at all."""
AT_ONCE = 1 << 16
"""Rows times cells whose capitals are computed at once."""


class BetLogs(NamedTuple):
    """What is remembered of the rows that count for one mean."""

    logs: Floats
    """log L of every bet: (cells, bets)."""
    rows: Floats
    """The number of rows, a scalar."""

    def log_capital(self) -> Floats:
        """log W of every cell; the axes before the cells stay."""
        logs, kept = self.logs, np.log(_reserve(self.rows))[..., None]
        most = np.maximum(logs.max(axis=-1), kept)
        bets = np.exp(logs - most[..., None]).mean(axis=-1)
        return np.asarray(most + np.log(np.exp(kept - most) + bets))


class WatchState(NamedTuple):
    """What is remembered of the rows so far."""

    up: BetLogs
    """Against "the first mean is at most b + U", in the cells of pi and q."""
    down: BetLogs
    """Against "the second mean is at least a", in the cells of q."""
    more: BetLogs
    """Against "the share of the group is at most d", in the cells of pi."""
    less: BetLogs
    """Against "the share of the group is at least c", in the cells of pi."""

    def log_capital(self) -> Floats:
        """log of the capital against the whole hypothesis; the axes before the cells stay."""
        up, down, more, less = (each.log_capital() for each in self)
        share = np.logaddexp(more, less) - math.log(2)
        known = share[..., :, None] + down[..., None, :]
        return np.asarray((up.reshape(known.shape) + known).min(axis=(-2, -1)))


class Hypothesis(NamedTuple):
    """The means of a claim that holds, for every cell of what is not known."""

    up: Floats
    """The largest first mean, (cells of pi times cells of q,)."""
    down: Floats
    """The smallest second mean, (cells of q,)."""
    more: Floats
    """The largest share of the group, (cells of pi,)."""
    less: Floats
    """The smallest share of the group, (cells of pi,)."""


class WatchedRows(NamedTuple):
    """New rows in their order: for each mean of a quantity, x in [0, 1], and whether it counts."""

    weights: Floats
    """a_j = 1 or -1, (J,)."""
    values: Floats
    """x, (J, rows)."""
    counts: np.ndarray
    """(J, rows), bool."""


def begin_watch(claim: Claim, weights: Floats, clip: float) -> WatchState:
    """The state before the first row, for a quantity of one mean or of the gap of two.

    `weights` are the a_j = 1 or -1 of its means.
    """
    means = _hypothesis(claim, weights, clip)
    return WatchState(
        *(BetLogs(np.full((len(each), BETS), NOTHING), np.asarray(0.0)) for each in means)
    )


def watch_rows(
    claim: Claim, clip: float, state: WatchState, rows: WatchedRows, alpha: float
) -> tuple[WatchState, int | None]:
    """The state after further rows, and the place (from 0) of the row that raised the alarm.

    The claim is sign * quantity <= limit. There is an alarm if the capital reaches 1 / alpha; the
    rows behind it are counted all the same.
    """
    means = _hypothesis(claim, rows.weights, clip)
    pairs = _values(claim, rows)
    alarm, at_once = None, max(1, AT_ONCE // len(means.up))
    for begin in range(0, rows.values.shape[1], at_once):
        part = slice(begin, begin + at_once)
        (x, in_x), (y, in_y), (member, known) = (
            (values[part], counts[part]) for values, counts in pairs
        )
        after = WatchState(
            _bet(state.up, x, in_x, means.up),
            _bet(state.down, 1 - y, in_y, 1 - means.down),
            _bet(state.more, member, known, means.more),
            _bet(state.less, 1 - member, known, 1 - means.less),
        )
        if alarm is None:
            reached = after.log_capital() >= -math.log(alpha)
            alarm = begin + int(reached.argmax()) if reached.any() else None
        state = WatchState(*(BetLogs(each.logs[-1], each.rows[-1]) for each in after))
    return state, alarm


def _values(claim: Claim, rows: WatchedRows) -> list[tuple[Floats, Floats]]:
    """Of the first mean, of the second and of the share of the group: values, and what counts."""
    nothing = np.zeros(rows.values.shape[1])
    signs = claim.sign * rows.weights
    held = [(x, c.astype(float)) for x, c in zip(rows.values, rows.counts, strict=True)]
    share = (nothing, nothing)
    if claim.whole:
        group, everything = (0, 1) if rows.weights[0] > 0 else (1, 0)
        share = (held[group][1], held[everything][1])
        held[everything] = (held[everything][0], share[1] * (1 - share[0]))
    first = [own for own, sign in zip(held, signs, strict=True) if sign > 0]
    second = [own for own, sign in zip(held, signs, strict=True) if sign < 0]
    return [*(first or [(nothing, nothing)]), *(second or [(nothing, nothing)]), share]


def _hypothesis(claim: Claim, weights: Floats, clip: float) -> Hypothesis:
    """What is true of the means if the claim holds; 1 and 0 say nothing."""
    limit, one, zero = claim.limit / clip, np.ones(1), np.zeros(1)
    if len(weights) == 1 and claim.sign * weights[0] > 0:
        return Hypothesis(np.clip([limit], 0, 1), zero, one, zero)
    if len(weights) == 1:  # -x <= limit, which is x >= -limit
        return Hypothesis(one, np.clip([-limit], 0, 1), one, zero)
    ends = np.linspace(0, 1, (CELLS // 2 if claim.whole else CELLS) + 1)
    shares = np.linspace(0, 1, SHARES + 1) if claim.whole else np.array([0.0, 1.0])
    room = np.full(len(shares) - 1, limit)
    if claim.whole:
        rest = 1 - (shares[1:] if limit > 0 else shares[:-1])
        room = np.where(rest > 0, limit / np.maximum(rest, 1e-9), 1.0)
    most = np.clip(ends[None, 1:] + room[:, None], 0, 1)
    return Hypothesis(most.ravel(), ends[:-1], shares[1:], shares[:-1])


def _bet(before: BetLogs, x: Floats, counts: Floats, most: Floats) -> BetLogs:
    """What is remembered after each of further rows: (rows, cells, bets), against means `most`."""
    largest = LARGEST / np.maximum(most, 1e-3)
    bets = SMALLEST * (largest / SMALLEST)[:, None] ** np.linspace(0, 1, BETS)
    bets = np.where(most[:, None] < 1, bets, 0.0)
    gains = counts[:, None, None] * np.log1p(bets * (x[:, None, None] - most[:, None]))
    total = np.cumsum(gains, axis=0)
    rows = before.rows + np.cumsum(counts)
    stakes = np.full(len(x), NOTHING)
    set_now = np.where(rows > 1, _reserve(rows - 1) - _reserve(rows), 1 - _reserve(rows))
    stakes[counts > 0] = np.log(set_now[counts > 0])
    begun = stakes[:, None, None] - (total - gains)
    held = np.logaddexp.accumulate(np.concatenate([before.logs[None], begun]))[1:]
    return BetLogs(held + total, rows)


def _reserve(rows: Floats) -> Floats:
    """The part of the capital that is not set after so many rows; all of it before the first."""
    return np.asarray(np.where(rows > 0, 0.5 / np.log2(np.maximum(rows, 1) + 1), 1.0))
