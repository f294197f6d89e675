"""Arrays before round 1, made without compiling programs.

`jnp.asarray` and `jnp.zeros` compile a program for every shape that is new, and so does each step
of `ravel_pytree`. Together they took longer than the programs of the rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from fedssca.problem.problem import Array, Params

__all__ = ["first_array", "flattened", "zeros"]


def first_array(numbers: Any, dtype: Any) -> Array:
    """Numbers as an array of this type; it is a copy."""
    return jax.device_put(np.array(numbers, jax.dtypes.canonicalize_dtype(dtype)))


def zeros(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """As many zeros of this type."""
    return jax.device_put(np.zeros(shape, jax.dtypes.canonicalize_dtype(dtype)))


def flattened(params: Params) -> tuple[Array, Callable[[Array], Params]]:
    """The same as `ravel_pytree`: all leaves as one vector, and the function back to the tree."""
    found: list[Callable[[Array], Params]] = []

    def ravel(tree: Params) -> Array:
        flat, unravel = ravel_pytree(tree)
        found.append(unravel)
        return flat

    shape = jax.eval_shape(ravel, params)
    parts = [np.asarray(leaf, shape.dtype).ravel() for leaf in jax.tree.leaves(params)]
    return first_array(np.concatenate(parts) if parts else np.zeros(0), shape.dtype), found[0]
