"""Lower bounds on epsilon from one run with canaries.

Each of m canaries is in the data with probability 1/2, independently. An attacker who sees all that
is released gives each of them a score.

- One run (Steinke, Nasr and Jagielski, 2023): he guesses for r of them whether they are in, and is
  right v times. Under (epsilon, delta) differential privacy

      P(v or more right)  <=  P(X >= v) + 2 m delta max_i P(v > X >= v - i) / i,

  where X is binomial with r trials of probability e^epsilon / (1 + e^epsilon) (theorem 5.2). Each
  epsilon at which the right side is below the error probability is refuted.
- Independent canaries: where what is released about one canary does not depend on the others, each
  is a run of its own. With the shares p of those inside and p' of those outside whose score exceeds
  a threshold, p <= e^epsilon p' + delta. Exact intervals of both shares (Clopper and Pearson) give
  a bound, which is far better where few canaries are exposed, but those clearly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from fedssca.evaluate.estimate import clopper_pearson

__all__ = ["LowerBound", "lower_bound", "p_value"]

SHARES = (0.002, 0.01, 0.05, 0.2, 0.5)
"""The shares of the canaries that are guessed; each is a test of its own."""
THRESHOLDS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
"""The log-likelihood ratios above which independent canaries count as seen."""


class LowerBound(NamedTuple):
    """What the scores prove."""

    epsilon: float
    """No smaller epsilon is compatible with them."""
    confidence: float
    how: str
    """What the best test found, in words."""


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The largest probability of so many correct guesses under (epsilon, delta)."""
    share = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, share))
    below = np.cumsum(binom.pmf(correct - np.arange(1, correct + 1), guesses, share))
    worst = float(np.max(below / np.arange(1, correct + 1), initial=0.0))
    return min(1.0, tail + 2 * canaries * delta * worst)


def lower_bound(
    scores: np.ndarray,
    inside: np.ndarray,
    delta: float,
    *,
    independent: bool = False,
    confidence: float = 0.95,
) -> LowerBound:
    """The largest epsilon that the scores refute.

    `scores` are log-likelihood ratios: larger for canaries that seem to be in the data. `inside`
    says which are. All tests together err with probability 1 - `confidence`.
    """
    tests = 2 * len(SHARES) + independent * len(THRESHOLDS)
    level = (1 - confidence) / tests
    best = LowerBound(0.0, confidence, "no guess is better than chance allows")
    order, count = np.argsort(-scores, kind="stable"), len(scores)
    for share in SHARES:
        top = max(1, int(share * count))
        right = int(inside[order[:top]].sum())
        both = right + int((~inside[order[count - top :]]).sum())
        for guesses, correct in ((top, right), (2 * top, both)):
            found = _refuted(count, guesses, correct, delta, level)
            if found > best.epsilon:
                best = LowerBound(found, confidence, f"{correct:,} of {guesses:,} guesses right")
    for threshold in THRESHOLDS if independent else ():
        seen = scores > threshold
        ours, theirs = int((seen & inside).sum()), int((seen & ~inside).sum())
        found = _separated(ours, int(inside.sum()), theirs, int((~inside).sum()), delta, level)
        if found > best.epsilon:
            said = f"{ours:,} canaries seen that are in, {theirs:,} that are not"
            best = LowerBound(found, confidence, said)
    return best


def _separated(
    ours: int, inside: int, theirs: int, outside: int, delta: float, level: float
) -> float:
    """log((p - delta) / p'), each share at the end of its interval."""
    least, most = (
        clopper_pearson(ours, inside, 1 - level)[0],
        clopper_pearson(theirs, outside, 1 - level)[1],
    )
    return float(np.log((least - delta) / most)) if least > delta else 0.0


def _refuted(canaries: int, guesses: int, correct: int, delta: float, level: float) -> float:
    if guesses > canaries or p_value(canaries, guesses, correct, 0.0, delta) >= level:
        return 0.0
    low, high = 0.0, 20.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        if p_value(canaries, guesses, correct, middle, delta) < level:
            low = middle
        else:
            high = middle
    return low
