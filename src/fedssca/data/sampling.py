"""Stateless mini-batches: indices = f(seed, round, client), without replacement, in O(batch).

A batch is the image of 0 .. B-1 under a pseudo-random permutation of the client's rows. So the
permutation of all rows is never stored, and any party can compute the batch of any round. The
permutation is a Feistel network over Z_a x Z_b, with a b slightly above the number of rows; a value
outside the rows is permuted again until it is inside. A Feistel network does not mix a small set
well, so clients with few rows sort random numbers instead.

Poisson sampling takes each of N rows with probability q = B / N, independently. That is a binomial
number of rows, and so many of them without replacement: the number is drawn first, then the same
permutation says which. A batch has `places` for that number with room to spare. All of this is a
function of the seed, made to be repeated; it hides nothing from anybody who knows the seed.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = [
    "TAIL",
    "Drawn",
    "Population",
    "batch_indices",
    "drawn_rows",
    "places_for",
    "uniform",
    "uniforms",
    "words",
]

ROUNDS = 6
FEW = 64
"""Clients with at most this many rows sort random numbers."""
TAIL = 1e-15
"""The largest probability that Poisson sampling draws more rows than a batch has places."""

_traced_once = partial(jax.jit, inline=True)
"""For functions that are part of many programs: JAX keeps their steps for the next program."""


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


class Drawn(NamedTuple):
    """The rows of a round: numbers, and which of the places are in use."""

    rows: Any
    """(clients, places) Row numbers."""
    present: Any = None
    """(clients, places) Whether a row is in the batch; None: all of them are."""


def places_for(sizes: Any, batch: int) -> int:
    """Places that the Poisson batches of all clients fit into, up to a probability `TAIL` each.

    >>> places_for([1000], 100)
    180
    """
    from scipy.stats import binom

    rows = np.unique(np.asarray(sizes))
    most = binom.isf(TAIL, rows, np.minimum(1.0, batch / rows))
    return int(np.minimum(most, rows).max())


def drawn_rows(
    seed: int | Array,
    round: Array | int,
    clients: np.ndarray | Array,
    sizes: np.ndarray | Population,
    batch: int,
    steps: int = 1,
    places: int = 0,
) -> Drawn:
    """The rows of each client: `batch` of them per step, or with `places` a Poisson sample."""
    people = sizes if isinstance(sizes, Population) else Population.of(sizes)
    if not places:
        return Drawn(batch_indices(seed, round, clients, people, batch, steps))
    clients, last = jnp.asarray(clients), people.size - np.uint32(1)
    position = jnp.minimum(np.arange(places, dtype=np.uint32)[None], last)
    key = jnp.broadcast_to(_key(seed, round, clients[:, None], np.uint32(0)), position.shape)
    count = _binomial(seed, round, clients, jnp.asarray(people.size)[:, 0], batch)
    index = _permuted(position, people, key)
    return Drawn(index.astype(jnp.int32), np.arange(places)[None] < count[:, None])


def _binomial(seed: int | Array, round: Any, clients: Array, rows: Array, batch: int) -> Array:
    """The number of rows that each client draws."""
    both = jnp.asarray(words(seed) if isinstance(seed, int) else seed)
    key = jax.random.wrap_key_data(both, impl="threefry2x32")
    key = jax.random.fold_in(key, jnp.asarray(round).astype(jnp.uint32))

    def one(client: Array, rows: Array) -> Array:
        own = jax.random.fold_in(key, client.astype(jnp.uint32))
        share = jnp.minimum(1, batch / rows.astype(jnp.float32))
        return jax.random.binomial(own, rows.astype(jnp.float32), share)

    return jax.vmap(one)(clients, rows)


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
    return _permuted(position, people, key).astype(jnp.int32)


def _permuted(position: Array, people: Population, key: Array) -> Array:
    """The images of positions under the permutations of the clients' rows."""
    if not people.any_many:
        return _shuffle(position, people.size, key)
    if not people.any_few:
        return _permute(position, people.size, people.side, key)
    few = people.size <= FEW
    return jnp.where(
        few,
        _shuffle(jnp.where(few, position, 0), people.size, key),
        _permute(position, people.size, people.side, key),
    )


def uniform(seed: int | Array, round: Array | int, clients: Array) -> Array:
    """Draw a number in [0, 1) for each client, which decides whether it answers in this round."""
    key = _key(
        seed, round, clients, np.uint32(0xFFFFFFFF)
    )  # this is not the number of any pass over the rows
    return (key >> 8).astype(jnp.float32) * np.float32(2**-24)


def uniforms(
    seed: int | Array, round: Array | int, client: Array, vector: int, count: int
) -> Array:
    """Draw `count` numbers in [0, 1) by which a client rounds a vector of its message."""
    place = jnp.arange(count, dtype=jnp.uint32)
    key = _key(seed, round, client, np.uint32(0xFFFFFFFE - vector))
    draws = _mix(_mix(key ^ _mix(place + jnp.uint32(0x27D4EB2F))) + place)
    return (draws >> 8).astype(jnp.float32) * np.float32(2**-24)


def _key(seed: int | Array, *rest: Any) -> Array:
    """Mix the seed and the other words into 32 bits."""
    low, high = jnp.asarray(words(seed) if isinstance(seed, int) else seed)
    key = low
    for word in (high, *rest):
        key = _mix(key ^ _mix(jnp.asarray(word).astype(jnp.uint32) + jnp.uint32(0x9E3779B9)))
    return key


@_traced_once
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


@_traced_once
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


@_traced_once
def _mix(x: Array) -> Array:
    """Apply the finaliser of MurmurHash3, in which every input bit affects every output bit."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
