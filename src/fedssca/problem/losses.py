"""Losses: functions of scores and a batch, one number per row.

The ready-made models and constraints use the cross-entropy. A problem with another loss is written
with `custom_problem` in Python; no key of a TOML names a loss.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedssca.problem.problem import Array, Batch

__all__ = ["LOSS", "cross_entropy"]

LOSS = "loss"
"""The name of the mean loss among the sampled terms."""


def cross_entropy(scores: Array, batch: Batch) -> Array:
    """-log softmax(scores)[y] for every sample."""
    picked = jnp.take_along_axis(scores, batch["y"][:, None].astype(jnp.int32), axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - picked
