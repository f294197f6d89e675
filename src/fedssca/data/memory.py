"""One copy of the data: programs read it where it lies, on disk if need be, part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["aligned", "on_device", "summed"]

LINE = 64
"""Bytes: programs read an array in place if it starts at a multiple of this."""


def aligned(array: np.ndarray) -> np.ndarray:
    """The same numbers at an address that programs can read; memory-mapped files begin at one."""
    if not array.size or (array.flags.c_contiguous and array.ctypes.data % LINE == 0):
        return array
    room = np.empty(array.nbytes + LINE, np.uint8)
    skip = -room.ctypes.data % LINE
    copy = room[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def on_device(columns: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Columns for a compiled program: the same memory where they are `aligned`, else a copy."""
    return {name: jax.device_put(column, may_alias=True) for name, column in columns.items()}


def summed(function: Callable[[Any], Any], parts: Any) -> Any:
    """The sum of function(part) over the parts' leading axis, one part in memory at a time."""
    first = jax.tree.map(lambda leaf: leaf[0], parts)
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, first))

    def add(total: Any, part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, function(part)), None

    return jax.lax.scan(add, zero, parts)[0]
