"""Large data in compiled programs: read in place, on disk if need be, one part at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["on_device", "summed"]


def on_device(columns: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Return columns for a compiled program: the same memory if they are aligned, else a copy."""
    return {name: jax.device_put(column, may_alias=True) for name, column in columns.items()}


def summed(function: Callable[[Any], Any], parts: Any) -> Any:
    """Return the sum of function(part) over the leading axis, with one part in memory at a time."""
    traced = jax.jit(function, inline=True)  # once, for the shapes of the sum and for the loop
    first = jax.tree.map(lambda leaf: leaf[0], parts)
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(traced, first))

    def add(total: Any, part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, traced(part)), None

    return jax.lax.scan(add, zero, parts)[0]
