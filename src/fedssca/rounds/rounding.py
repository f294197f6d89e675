"""Numbers in few bits: integers times a power of two.

A step 2^e is exact in floating point, and so are its multiples. So whoever adds such numbers, or
adds one of them to w, gets the same bits on every processor.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.methods.algorithm import Message
from fedssca.problem.problem import Array

__all__ = [
    "EXACT",
    "FULL",
    "Grid",
    "Way",
    "as_integers",
    "exponent",
    "from_integers",
    "integer_form",
    "moved",
    "on_grid",
    "packed_way",
]

FULL = 32
"""The number of bits of a number that is not rounded."""
EXACT = 127
"""The exponent that stands for no rounding."""
SMALLEST = -100
INTEGERS = {8: np.int8, 16: np.int16}

Grid: TypeAlias = Any
"""Exponents e of the steps 2^e, a tree like the vectors of a message: one for each vector."""


class Way(NamedTuple):
    """The way from one point to the next: integers, and the exponent of their common step."""

    steps: Array
    """int8; or uint8 with two integers of four bits in each, the first in the lower half."""
    exponent: Array


def most_of(bits: int) -> int:
    """The largest integer that is used; the smallest one is its negative."""
    return 2 ** (bits - 1) - 1


def exponent(largest: Array, bits: int) -> Array:
    """The e for which so many bits reach as far as `largest`: (2^(bits-1) - 1) 2^e >= largest."""
    needed = jnp.ceil(jnp.log2(largest / most_of(bits)))
    return jnp.clip(needed, SMALLEST, EXACT - 1).astype(jnp.int32)


def on_grid(values: Array, e: Array, bits: int, draws: Array | float) -> Array:
    """The integers floor(values / 2^e + draws), cut off at the ends, times 2^e.

    With draws from [0, 1) the expectation is `values`; with 1/2 it is the nearest integer.
    """
    most = most_of(bits)
    whole = jnp.clip(jnp.floor(jnp.ldexp(values, -e) + draws), -most, most)
    return jnp.ldexp(whole, e).astype(values.dtype)


def packed_way(way: Array, e: Array, bits: int) -> Way:
    """A way that lies on the grid 2^e, in the form in which it is sent."""
    steps = jnp.ldexp(way, -e).astype(jnp.int8)
    if bits == 8:
        return Way(steps, e)
    pairs = jnp.pad(steps, (0, -len(steps) % 2)).reshape(-1, 2).astype(jnp.uint8) & 15
    return Way(pairs[:, 0] | pairs[:, 1] << 4, e)


@jax.jit
def moved(w: Array, way: Way) -> Array:
    """The point at the end of a way that begins at w."""
    steps = jnp.asarray(way.steps)
    if steps.dtype == jnp.uint8:
        halves = jnp.stack([steps & 15, steps >> 4], axis=1).reshape(-1)[: w.size]
        steps = (halves.astype(jnp.int8) ^ 8) - 8
    return w + jnp.ldexp(steps.astype(w.dtype), way.exponent)


def integer_form(like: Message, grid: Grid, bits: int) -> Message:
    """The shapes of a message, as a client sends it in a round with this grid."""
    if not _rounds(grid, bits):
        return like
    kind = INTEGERS[bits]
    vectors = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, kind), like.vectors)
    return like._replace(vectors=vectors)


def as_integers(message: Message, grid: Grid, bits: int) -> Message:
    """The message as it is sent: its vectors, which are on the grid, as integers."""
    if not _rounds(grid, bits):
        return message
    kind = INTEGERS[bits]

    def whole(leaf: Any, e: Any) -> np.ndarray:
        return np.ldexp(np.asarray(leaf), -np.asarray(e)[..., None]).astype(kind)

    return message._replace(vectors=jax.tree.map(whole, message.vectors, grid))


def from_integers(total: Message, grid: Grid, like: Message) -> Message:
    """A sum of messages that were sent as integers, in the precision of `like`."""

    def real(leaf: Any, e: Any, as_: Any) -> np.ndarray:
        if np.asarray(leaf).dtype == as_.dtype:
            return np.asarray(leaf)
        return np.ldexp(np.asarray(leaf, as_.dtype), np.asarray(e)[..., None])

    if not jax.tree.leaves(grid):
        return total
    return total._replace(vectors=jax.tree.map(real, total.vectors, grid, like.vectors))


def _rounds(grid: Grid, bits: int) -> bool:
    """Whether the messages of a round are rounded: all of their vectors are, or none."""
    return bits < FULL and all(bool((np.asarray(e) != EXACT).all()) for e in jax.tree.leaves(grid))
