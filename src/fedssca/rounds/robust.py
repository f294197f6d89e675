"""Sums of messages of which some may be lies: well formed, finite, and wrong.

A message is the client's share of all rows times a mean over its own batch. The rules below undo
the share, choose a middle of the clients' means entry by entry, and multiply it by the shares of
all that answered, so the result stands in the place of the plain sum. The values of constraints
travel in the same messages and are treated alike.

    none           the mean; used for comparison only
    trimmed-mean   leave out the largest and the smallest fifth, at least one each; average the rest
    median         the middle value
    norm-bound     shorten every vector (and bound every value) to the median of their lengths

They need the single messages, so a sum that hides them cannot use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedssca.rounds.aggregate import Ask, Gathered, Sums, in_clear

__all__ = ["RULES", "RobustSum", "robust_sums", "trimmed"]

TRIM = 0.2
"""The share of the clients that a trimmed mean leaves out on each side."""

Rule = Callable[[np.ndarray], np.ndarray]
"""The means of all clients, (clients, ...) -> one in their place, (...)."""


def trimmed(clients: int) -> int:
    """How many of the clients a trimmed mean leaves out on each side: 1 of 3 to 9, 2 of 10..."""
    return min(max(1, int(TRIM * clients)), (clients - 1) // 2)


def plain_mean(means: np.ndarray) -> np.ndarray:
    """The mean of every entry, which a single client can move anywhere."""
    return np.asarray(means.mean(axis=0))


def trimmed_mean(means: np.ndarray) -> np.ndarray:
    """The mean of every entry without its `trimmed` largest and smallest values."""
    out = trimmed(len(means))
    kept: np.ndarray = np.sort(means, axis=0)[out : len(means) - out]
    return np.asarray(kept.mean(axis=0))


def median(means: np.ndarray) -> np.ndarray:
    """The median of every entry."""
    return np.asarray(np.median(means, axis=0))


def norm_bound(means: np.ndarray) -> np.ndarray:
    """The mean after every client's array was shortened to the median of their lengths.

    The last axis of an array is one vector; a list of values is bounded value by value.
    """
    vectors = means if means.ndim > 2 else means[..., None]
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    bound = np.median(lengths, axis=0, keepdims=True)
    factor = np.minimum(1.0, bound / np.maximum(lengths, np.finfo(float).tiny))
    return np.asarray((vectors * factor).mean(axis=0).reshape(means.shape[1:]))


RULES: Mapping[str, Rule] = {
    "none": plain_mean,
    "trimmed-mean": trimmed_mean,
    "median": median,
    "norm-bound": norm_bound,
}


class RobustSum:
    """The server's half of a plain sum that bounds what single clients can do to it."""

    def __init__(self, rule: str, shares: Sequence[float]) -> None:
        """`shares[i]` is client i's share of all rows, N_i / N."""
        self._rule, self._shares = RULES[rule], shares

    def gather(self, ask: Ask, asked: Sequence[int], like: Any) -> Gathered:
        """The robust sum over those of `asked` that answer."""
        found = ask("reply", {number: {} for number in asked})
        who = tuple(number for number in asked if number in found)
        if len(who) < 2:
            return in_clear.server().gather(lambda phase, sent: found, asked, like)
        shares = np.maximum([self._shares[number] for number in who], np.finfo(float).tiny)

        def joined(*leaves: Any) -> np.ndarray:
            exact = np.stack([np.asarray(leaf, float) for leaf in leaves])
            means = exact / shares.reshape(-1, *[1] * (exact.ndim - 1))
            kind = np.asarray(leaves[0]).dtype  # a middle of integers is none
            kind = np.dtype(np.float32) if kind.kind == "i" else kind
            return np.asarray(shares.sum() * self._rule(means), kind)

        return Gathered(jax.tree.map(joined, *[found[number] for number in who]), who)


def robust_sums(rule: str, sizes: Sequence[int]) -> Sums:
    """Both halves: clients answer in the clear, and the server adds up by `rule`."""
    shares = np.asarray(sizes) / np.sum(sizes)
    return in_clear._replace(server=lambda: RobustSum(rule, shares.tolist()))
