"""Ready-made constraints on a classifier: mean f(scores, batch) <= limit.

A `Constraint` names the sampled means it needs; equal names are computed and sent once, whatever
the number of constraints (and the objective) that use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedssca.problem import Array, Batch

__all__ = ["LOSS", "Constraint", "cross_entropy", "loss_at_most"]

ScoreTerm: TypeAlias = Callable[[Array, Batch], Array]
"""(scores (B, L), batch) -> one number a sample, (B,)."""


class Constraint(NamedTuple):
    """sum_k weight_k mean f_k(scores, batch) <= limit, with terms = {name: (weight_k, f_k)}."""

    name: str
    terms: Mapping[str, tuple[float, ScoreTerm]]
    limit: float


def cross_entropy(scores: Array, batch: Batch) -> Array:
    """-log softmax(scores)[y] for every sample."""
    picked = jnp.take_along_axis(scores, batch["y"][:, None].astype(jnp.int32), axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - picked


LOSS = "loss"


def loss_at_most(limit: float) -> list[Constraint]:
    """Training loss F(w) <= limit, the paper's constraint."""
    return [Constraint(LOSS, {LOSS: (1.0, cross_entropy)}, limit)]
