"""How scores decide: for one of several classes, or for each of several labels by itself.

                     one of L classes                        each of M labels
    y                the number of the class                 the label set, bit k is label k
    predicted        k = argmax_l s_l                        all k with s_k > 0
    margin of k      s_k - logsumexp(the other scores)       s_k
    probabilities    softmax(s)                              sigmoid(s_k)

Limits on rates need no more than this, so that they know nothing else of the task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedssca.data.encode.label_sets import has_label
from fedssca.problem.problem import Array

__all__ = ["EACH_LABEL", "ONE_CLASS", "Decisions", "present"]


class Decisions(NamedTuple):
    """What is predicted from scores (B, L), and whether it is right."""

    exclusive: bool
    """A row is of exactly one of the classes."""
    holds: Callable[[Array, int], Array]
    """(y, k) -> which rows are of class k, or have label k."""
    chosen: Callable[[Array, int], Array]
    """(scores, k) -> for which rows class or label k is predicted."""
    margin: Callable[[Array, int], Array]
    """(scores, k) -> how clearly it is predicted, (B,); about 0 where the prediction changes."""
    right: Callable[[Array, Array], Array]
    """(scores, y) -> which rows are predicted without an error."""
    surplus: Callable[[Array, Array], Array]
    """(scores, y) -> how clearly they are, (B,)."""
    chances: Callable[[Array], Array]
    """scores -> the probabilities of the classes or labels, (B, L)."""
    kinds: Callable[[int], int]
    """The number of scores -> how many values y can have: 0, 1, ..."""


def present(y: Array, labels: int) -> Array:
    """Which of the labels the rows with these label sets have, (B, M)."""
    return has_label(y[:, None], jnp.arange(labels))


def _margin_of_class(scores: Array, place: int) -> Array:
    others = jnp.delete(scores, place, axis=1)
    return scores[:, place] - jax.nn.logsumexp(others, axis=1)


def _surplus_of_class(scores: Array, y: Array) -> Array:
    own = jax.nn.one_hot(y, scores.shape[1], dtype=scores.dtype)
    return (own * scores).sum(axis=1) - jax.nn.logsumexp(scores, axis=1, b=1 - own)


def _surplus_of_labels(scores: Array, y: Array) -> Array:
    """A smooth minimum of the margins of all labels: -log sum_k exp(-s_k), or s_k where absent."""
    signed = jnp.where(present(y, scores.shape[1]), scores, -scores)
    return -jax.nn.logsumexp(-signed, axis=1)


ONE_CLASS = Decisions(
    exclusive=True,
    holds=lambda y, place: y == place,
    chosen=lambda scores, place: scores.argmax(axis=1) == place,
    margin=_margin_of_class,
    right=lambda scores, y: scores.argmax(axis=1) == y,
    surplus=_surplus_of_class,
    chances=lambda scores: jax.nn.softmax(scores, axis=1),
    kinds=lambda scores: scores,
)
"""The class with the largest score is predicted."""

EACH_LABEL = Decisions(
    exclusive=False,
    holds=has_label,
    chosen=lambda scores, place: scores[:, place] > 0,
    margin=lambda scores, place: scores[:, place],
    right=lambda scores, y: ((scores > 0) == present(y, scores.shape[1])).all(axis=1),
    surplus=_surplus_of_labels,
    chances=jax.nn.sigmoid,
    kinds=lambda scores: 1 << scores,
)
"""Every label with a positive score is predicted."""
