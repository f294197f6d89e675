"""Losses: functions of scores and a batch, one number per row.

A task (`problem/tasks.py`) has one of them. The losses of a regression are functions of the one
score s and of y, the target in the unit in which it is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

from fedssca.errors import UserError
from fedssca.problem.decisions import present
from fedssca.problem.functions import call_own
from fedssca.problem.problem import Array, Batch

__all__ = [
    "LOSS",
    "WEIGHTED_LOSS",
    "RowLoss",
    "binary_cross_entropy",
    "cross_entropy",
    "huber",
    "own_loss",
    "pinball",
    "poisson",
    "poisson_deviance",
    "quantile",
    "squared",
]

RowLoss: TypeAlias = Callable[[Array, Batch], Array]
"""(scores (B, L), batch) -> the loss of every row, (B,)."""
LOSS = "loss"
"""The name of the mean loss among the sampled terms."""
WEIGHTED_LOSS = "weighted loss"
"""The name of the mean of weight times loss."""
ROUNDED = 0.05
"""The width of the rounded tip of the quantile loss, in units of y."""


def own_loss(name: str) -> RowLoss:
    """The loss of the user, "package.module:function": loss(scores, batch) -> one number per row.

    It is a function of JAX arrays. The package is imported when a loss is first computed, so that
    predictions do not need it.
    """

    def loss(scores: Array, batch: Batch) -> Array:
        found = jnp.asarray(call_own("problem.loss", name, scores, batch))
        if found.shape != scores.shape[:1]:
            raise UserError(
                f"problem.loss = {name!r} gives shape {found.shape} for {len(scores)} rows: one "
                f"number per row is needed, shape ({len(scores)},)"
            )
        return found.astype(scores.dtype)

    return loss


def cross_entropy(scores: Array, batch: Batch) -> Array:
    """-log softmax(scores)[y] for every sample."""
    picked = jnp.take_along_axis(scores, batch["y"][:, None].astype(jnp.int32), axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - picked


def binary_cross_entropy(scores: Array, batch: Batch) -> Array:
    """The mean over the labels of log(1 + exp s_k) - y_k s_k, for every sample.

    y_k is 1 if label k is in the label set of the sample.
    """
    y = present(batch["y"], scores.shape[1]).astype(scores.dtype)
    return (jax.nn.softplus(scores) - y * scores).mean(axis=1)


def squared(scores: Array, batch: Batch) -> Array:
    """(s - y)^2 / 2 for every sample."""
    return jnp.square(scores[:, 0] - batch["y"]) / 2


def huber(width: float) -> RowLoss:
    """e^2 / 2 where |e| <= width, and width (|e| - width / 2) beyond, with e = s - y."""
    if not width > 0:
        raise UserError(f"the width of the Huber loss is {width}: it must be positive")

    def loss(scores: Array, batch: Batch) -> Array:
        return _rounded(scores[:, 0] - batch["y"], width) * width

    return loss


def quantile(level: float) -> RowLoss:
    """q (y - s) above the prediction and (1 - q) (s - y) below it, with a rounded tip.

    Within `ROUNDED` of y the loss is a parabola, so that it has a gradient everywhere.
    """
    if not 0 < level < 1:
        raise UserError(f"the level of the quantile loss is {level}: it must lie between 0 and 1")

    def loss(scores: Array, batch: Batch) -> Array:
        error = scores[:, 0] - batch["y"]
        return (_rounded(error, ROUNDED) + ROUNDED / 2) / 2 + (0.5 - level) * error

    return loss


def pinball(level: float, error: Array) -> Array:
    """The quantile loss without the rounded tip, of error = prediction - target."""
    return jnp.maximum((1 - level) * error, -level * error)


def poisson(scores: Array, batch: Batch) -> Array:
    """exp(s) - y s for every sample: the negative log-likelihood of a count, but for a constant."""
    return jnp.exp(scores[:, 0]) - batch["y"] * scores[:, 0]


def poisson_deviance(scores: Array, batch: Batch) -> Array:
    """2 (y log(y / m) - y + m) for every sample, with m = exp(s); 2 m where y = 0."""
    s, y = scores[:, 0], batch["y"]
    positive = jnp.where(y > 0, y, 1.0)
    return 2 * (jnp.where(y > 0, positive * (jnp.log(positive) - s) - y, 0.0) + jnp.exp(s))


def _rounded(error: Array, width: float) -> Array:
    """|e| - width / 2 with a rounded tip: e^2 / (2 width) where |e| <= width."""
    size = jnp.abs(error)
    near = jnp.square(jnp.where(size <= width, error, 0.0)) / (2 * width)
    return jnp.where(size <= width, near, size - width / 2)
