"""Gaussian noise from a seed, for simulations that can be repeated: it protects nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedssca.methods.algorithm import Message, Request
from fedssca.problem.problem import Array

__all__ = ["digest", "disturbed"]


def disturbed(
    message: Message, request: Request, deviations: tuple[Any, Any], seed: Any, number: Any
) -> Message:
    """The message with noise that is a function of (seed, round, the point asked for, number).

    `deviations` are the standard deviations of the noise on values and on vectors.
    """
    key = jax.random.wrap_key_data(jnp.asarray(seed), impl="threefry2x32")
    # Probes ask for one round several times: the point tells them apart.
    for word in (request.round, number, digest(request.w)):
        key = jax.random.fold_in(key, jnp.asarray(word).astype(jnp.uint32))
    scalar, vector = deviations
    leaves, shape = jax.tree.flatten(message)
    values = len(jax.tree.leaves(message.scalars))
    out = [
        leaf
        + jnp.asarray(scalar if i < values else vector, leaf.dtype)
        * jax.random.normal(jax.random.fold_in(key, i), leaf.shape, leaf.dtype)
        for i, leaf in enumerate(map(jnp.asarray, leaves))
    ]
    return jax.tree.unflatten(shape, out)


def digest(w: Array) -> Array:
    """The bits of w in one word."""
    bits = jax.lax.bitcast_convert_type(w, jnp.uint32).ravel()
    odd = 2 * jnp.arange(bits.size, dtype=jnp.uint32) + 1
    return jnp.sum((bits ^ (bits >> 15)) * odd, dtype=jnp.uint32)
