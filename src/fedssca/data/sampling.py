"""Stateless mini-batches: indices = f(seed, round, client), without replacement, in O(batch).

A batch is the image of 0 .. B-1 under a pseudo-random permutation of the client's rows. So the
permutation of all rows is never stored, and any party can compute the batch of any round. The
permutation is a Feistel network over Z_a x Z_b, with a b slightly above the number of rows; a value
outside the rows is permuted again until it is inside. A Feistel network does not mix a small set
well, so clients with few rows sort random numbers instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["Population", "batch_indices", "uniform", "words"]

ROUNDS = 6
FEW = 64
"""Clients with at most this many rows sort random numbers."""


def words(seed: int) -> np.ndarray:
    """Return a seed as two words of 32 bits, so that one compiled program takes any seed."""
    return np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)


class Population(NamedTuple):
    """Numbers of rows of the clients, as sampling needs them: arrays of numpy or of a program."""

    size: Any
    """(clients, 1) The number of rows of each client."""
    side: Any
    """(clients, 1) The larger side a of the smallest rectangle a x b that holds the rows."""
    any_few: bool
    """Whether some clients have few rows."""
    any_many: bool
    """Whether some clients have more than few rows."""

    @classmethod
    def of(cls, sizes: np.ndarray) -> Population:
        """Return the population of clients with these numbers of rows."""
        size = np.asarray(sizes, np.uint32)[:, None]
        side = np.ceil(np.sqrt(size.astype(float))).astype(np.uint32)
        few = size <= FEW
        return cls(size, side, bool(few.any()), bool((~few).any()))

    def take(self, clients: Array) -> Population:
        """Return some of the clients, chosen inside a program."""
        return self._replace(
            size=jnp.asarray(self.size)[clients], side=jnp.asarray(self.side)[clients]
        )


def batch_indices(
    seed: int | Array,
    round: Array | int,
    clients: np.ndarray | Array,
    sizes: np.ndarray | Population,
    batch: int,
    steps: int = 1,
) -> Array:
    """Draw row numbers of each client: an array (clients, steps * batch).

    The batches of one round are disjoint until a client's rows are used up; then a new pass over
    the rows begins with a new permutation. No client may have fewer rows than one batch. `seed` is
    a number or the two `words` of one.
    """
    people = sizes if isinstance(sizes, Population) else Population.of(sizes)
    step = np.repeat(np.arange(steps, dtype=np.uint32), batch)[None]
    in_pass = people.size // np.uint32(batch)
    epoch, start = step // in_pass, (step % in_pass) * np.uint32(batch)
    position = jnp.asarray(start + np.tile(np.arange(batch, dtype=np.uint32), steps)[None])
    key = jnp.broadcast_to(_key(seed, round, clients[:, None], epoch), position.shape)
    if not people.any_many:
        index = _shuffle(position, people.size, key)
    elif not people.any_few:
        index = _permute(position, people.size, people.side, key)
    else:
        few = people.size <= FEW
        index = jnp.where(
            few,
            _shuffle(jnp.where(few, position, 0), people.size, key),
            _permute(position, people.size, people.side, key),
        )
    return index.astype(jnp.int32)


def uniform(seed: int | Array, round: Array | int, clients: Array) -> Array:
    """Draw a number in [0, 1) for each client, which decides whether it answers in this round."""
    key = _key(
        seed, round, clients, np.uint32(0xFFFFFFFF)
    )  # this is not the number of any pass over the rows
    return (key >> 8).astype(jnp.float32) * np.float32(2**-24)


def _key(seed: int | Array, *rest: Any) -> Array:
    """Mix the seed and the other words into 32 bits."""
    low, high = jnp.asarray(words(seed) if isinstance(seed, int) else seed)
    key = low
    for word in (high, *rest):
        key = _mix(key ^ _mix(jnp.asarray(word).astype(jnp.uint32) + jnp.uint32(0x9E3779B9)))
    return key


def _shuffle(position: Array, size: Any, key: Array) -> Array:
    """Permute few rows: the order of as many random numbers."""
    row = np.arange(FEW, dtype=np.uint32)
    draws = _mix(_mix(key[..., None] ^ _mix(jnp.asarray(row) + jnp.uint32(0x27D4EB2F))) + row)
    order = jnp.argsort(
        jnp.where(row < size[..., None], draws >> 1, jnp.uint32(0xFFFFFFFF)), axis=-1
    )
    return jnp.take_along_axis(order, position[..., None].astype(jnp.int32), axis=-1)[
        ..., 0
    ].astype(jnp.uint32)


def _permute(position: Array, size: Any, a: Any, key: Array) -> Array:
    """Return the image of `position` under the permutation of range(size) that `key` selects."""
    b = (size + a - np.uint32(1)) // a

    def outside(at: tuple[Array, Array]) -> Array:
        return at[0] * b + at[1] >= size

    def once(at: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = at
        for r in range(ROUNDS):
            salt = _mix(key + jnp.uint32((0x85EBCA6B * (r + 1)) & 0xFFFFFFFF))
            if r % 2 == 0:
                left = _shift(left, _mix(right ^ salt), a)
            else:
                right = _shift(right, _mix(left ^ salt), b)
        return left, right

    def walk(at: tuple[Array, Array]) -> tuple[Array, Array]:
        stray, after = outside(at), once(at)
        return jnp.where(stray, after[0], at[0]), jnp.where(stray, after[1], at[1])

    left, right = jax.lax.while_loop(
        lambda at: jnp.any(outside(at)), walk, once((position // b, position % b))
    )
    return left * b + right


def _shift(value: Array, draw: Array, modulus: Any) -> Array:
    """Return value + floor(modulus * u) mod modulus, without a division.

    Here u is the upper 16 bits of `draw`, divided by 2^16. The side of a rectangle is at most 2^16,
    so nothing overflows.
    """
    moved = value + ((draw >> 16) * modulus >> 16)
    return jnp.where(moved >= modulus, moved - modulus, moved)


def _mix(x: Array) -> Array:
    """Apply the finaliser of MurmurHash3, in which every input bit affects every output bit."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
