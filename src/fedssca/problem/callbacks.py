"""Functions outside JAX, called from its programs with leading axes that vmap has added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.problem.problem import Array

__all__ = ["called_back", "leading", "picked"]


def called_back(
    callback: Callable[..., np.ndarray], like: jax.ShapeDtypeStruct, *args: Any
) -> Array:
    """`jax.pure_callback` with 64-bit numbers sent as pairs of 32-bit words.

    JAX passes the arguments in another thread, in which `jax.enable_x64` (a setting of the thread)
    may be off, and would round them to 32 bits there.
    """
    kinds = jax.tree.map(lambda leaf: leaf.dtype, args)

    def received(*sent: Any) -> np.ndarray:
        found = callback(*jax.tree.map(_join, sent, kinds))
        return found.view(np.uint32).reshape(*found.shape, 2) if _is_wide(found) else found

    shape = jax.ShapeDtypeStruct((*like.shape, 2), jnp.uint32) if _is_wide(like) else like
    answer = jax.pure_callback(
        received, shape, *jax.tree.map(_halve, args), vmap_method="expand_dims"
    )
    return jax.lax.bitcast_convert_type(answer, like.dtype) if _is_wide(like) else answer


def _is_wide(array: Any) -> bool:
    return bool(array.dtype.itemsize == 8)


def _halve(leaf: Array) -> Array:
    return jax.lax.bitcast_convert_type(leaf, jnp.uint32) if _is_wide(leaf) else leaf


def _join(sent: Any, kind: np.dtype[Any]) -> np.ndarray:
    words = np.asarray(sent)
    return words.view(kind)[..., 0] if kind.itemsize == 8 else words


def leading(w: np.ndarray, batch: dict[str, np.ndarray]) -> tuple[int, ...]:
    """The lengths of the leading axes that vmap has added."""
    count = w.ndim - 1
    return np.broadcast_shapes(w.shape[:-1], *(v.shape[:count] for v in batch.values()))


def picked(array: np.ndarray, at: tuple[int, ...]) -> np.ndarray:
    """The entry of an array at these places of the leading axes; unmapped axes have length 1."""
    return array[tuple(min(i, n - 1) for i, n in zip(at, array.shape, strict=False))]
