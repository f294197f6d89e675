"""Sums over all rows, in chunks, with programs that are compiled once.

Everything that is evaluated is made of sums over rows, so it adds up over the rows of different
holders: in a simulation, at sites with rows, for parties with columns, and under a secure sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.memory import on_device, summed
from fedssca.data.split import Columns, Rows
from fedssca.problem.problem import Array, Batch, Problem, Rate
from fedssca.problem.programs import once_per_problem, row_bytes

__all__ = [
    "CHUNK",
    "Pairs",
    "Passes",
    "Sums",
    "about_one_client",
    "added",
    "everything",
    "full_passes",
    "held_out",
    "over_chunks",
    "tallied",
    "training",
]

CHUNK = 4096
"""The number of rows that are evaluated at a time, at most."""
ROOM = 256_000_000
"""Bytes of all that is computed of these rows."""

Pairs: TypeAlias = dict[str, list[Array]]
"""Name -> numerator and denominator of every rate that the measure is a sum of."""
Sums: TypeAlias = dict[str, list[Array]]
"""Name -> for every rate that the measure is a sum of, (lines, 3): the sums of its numerators, of
its denominators and of its squared numerators. Line 0 is over all rows, then comes one line for
each of the problem's parts, then one for each client."""


class Passes(NamedTuple):
    """EvaluatedSums over chunks of rows, compiled once."""

    sums: Callable[[Array, Batch], tuple[Array, Pairs]]
    jacobian: Callable[[Array, Batch], Array]
    """(K, d)."""
    tally: Callable[[Array, Batch, int], Sums]
    """(w, rows, clients) -> the sums over all rows, over the parts, and over so many clients."""


@once_per_problem
def full_passes(problem: Problem) -> Passes:
    """The sums of a problem's terms and measures over rows, chunk by chunk."""

    def size(rows: Batch) -> int:
        return max(1, min(CHUNK, ROOM // max(row_bytes(problem, rows), 1)))

    @jax.jit
    def sums(w: Array, rows: Batch) -> tuple[Array, Pairs]:
        return over_chunks(rows, lambda chunk: part(w, chunk), size(rows))

    def part(w: Array, chunk: Batch) -> tuple[Array, Pairs]:
        weight = chunk["weight"].astype(w.dtype)
        return problem.terms(w, chunk) @ weight, added(problem.measure(w, chunk), weight)

    @jax.jit
    def jacobian(w: Array, rows: Batch) -> Array:
        def slopes(chunk: Batch) -> Array:
            return jax.jacrev(lambda point: part(point, chunk)[0])(w)

        return over_chunks(rows, slopes, size(rows))

    @partial(jax.jit, static_argnums=2)
    def tally(w: Array, rows: Batch, clients: int) -> Sums:
        def part(chunk: Batch) -> Sums:
            return tallied(problem, problem.measure(w, chunk), chunk, clients)

        return over_chunks(rows, part, size(rows))

    return Passes(sums, jacobian, tally)


def added(measures: dict[str, Sequence[Rate]], weight: Array) -> Pairs:
    """Every rate's two sums over the rows of a batch."""
    return {
        name: [jnp.stack([top @ weight, bottom @ weight]) for _, top, bottom in rates]
        for name, rates in measures.items()
    }


def about_one_client(problem: Problem) -> set[str]:
    """The names of the quantities that are about a single client."""
    return {bound.quantity for bound in problem.bounds if bound.client is not None}


def tallied(
    problem: Problem, measures: dict[str, Sequence[Rate]], batch: Batch, clients: int = 0
) -> Sums:
    """The sums of the rates of a batch: over all rows, over the parts, and over the clients.

    Quantities that are about one client are added up over all rows only.
    """
    owner = batch["client"]
    lines = [jnp.ones_like(owner, bool), *(jnp.asarray(part.own(batch)) for part in problem.parts)]
    masks = jnp.concatenate([jnp.stack(lines), owner[None] == jnp.arange(clients)[:, None]])
    alone = about_one_client(problem)

    def one(name: str, rate: Rate) -> Array:
        _, top, bottom = rate
        columns = jnp.stack([top, bottom, top * top], axis=1)
        weights = masks[:1] if name in alone else masks
        return (weights * batch["weight"]).astype(columns.dtype) @ columns

    return {name: [one(name, rate) for rate in rates] for name, rates in measures.items()}


def training(train: Rows | Columns) -> Batch:
    """All training rows, each with its client's number; rows without a client have weight 0."""
    if isinstance(train, Columns):
        return everything(train.columns, np.zeros(train.total, np.int32))
    owners = train.owners()
    return everything(train.columns, owners, owners >= 0)


def held_out(test: Mapping[str, np.ndarray] | None) -> Batch | None:
    """Held-out rows; without a column "client" they belong to none. None where there are none."""
    if test is None or not len(test["x"]):
        return None
    owners = test.get("client", np.full(len(test["x"]), -1))
    return everything(test, np.asarray(owners, np.int32))


def everything(
    columns: Mapping[str, Any], owners: np.ndarray, counted: np.ndarray | bool = True
) -> Batch:
    """The columns, not copied, with the clients and the weights of the rows."""
    weight = np.broadcast_to(np.asarray(counted, np.float32), owners.shape)
    return on_device({**columns, "client": owners, "weight": weight})


def over_chunks(rows: Batch, part: Callable[[Batch], Any], most: int = CHUNK) -> Any:
    """The sum of part(chunk) over chunks of the rows; the last one overlaps the one before it."""
    count = len(rows["weight"])
    size = min(most, count)

    def at(begin: Array) -> Any:
        start = jnp.minimum(begin, count - size)
        chunk = {k: jax.lax.dynamic_slice_in_dim(v, start, size) for k, v in rows.items()}
        fresh = jnp.arange(size) >= begin - start
        return part(chunk | {"weight": jnp.where(fresh, chunk["weight"], 0)})

    return summed(at, jnp.arange(0, count, size))
