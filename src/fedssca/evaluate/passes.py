"""Sums over all rows, in chunks, with programs that are compiled once.

Everything that is evaluated is made of sums over rows, so it adds up over the rows of different
holders: in a simulation, at sites with rows, for parties with columns, and under a secure sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.memory import on_device, summed
from fedssca.data.split import Columns, Rows
from fedssca.problem.problem import Array, Batch, Problem, Rate
from fedssca.problem.programs import once_per_problem, row_bytes, shared

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
ROOM = 32_000_000
"""Bytes of all that is computed of these rows: about what a processor's cache holds."""
MANY = 4
"""With more terms than this, rows on which the same terms have slopes are taken together."""

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

    @shared
    def sums(w: Array, rows: Batch) -> tuple[Array, Pairs]:
        return over_chunks(rows, lambda chunk: part(w, chunk), size(rows))

    def part(w: Array, chunk: Batch) -> tuple[Array, Pairs]:
        weight = chunk["weight"].astype(w.dtype)
        return problem.terms(w, chunk) @ weight, added(problem.measure(w, chunk), weight)

    @shared
    def jacobian(w: Array, rows: Batch) -> Array:
        if problem.of_scores is not None and problem.combine.shape[1] > MANY:
            return alike_together(problem, w, rows, size(rows))

        def slopes(chunk: Batch) -> Array:
            return jax.jacrev(lambda point: part(point, chunk)[0])(w)

        return over_chunks(rows, slopes, size(rows))

    @cache
    def tally(clients: int) -> Callable[[Array, Batch], Sums]:
        def counted(w: Array, rows: Batch) -> Sums:
            def part(chunk: Batch) -> Sums:
                return tallied(problem, problem.measure(w, chunk), chunk, clients)

            return over_chunks(rows, part, size(rows))

        return shared(counted)

    return Passes(sums, jacobian, lambda w, rows, clients: tally(clients)(w, rows))


def alike_together(problem: Problem, w: Array, rows: Batch, size: int) -> Array:
    """The gradients of the sums of the terms over rows, (K, d), without those that are 0.

    The term of a limit on a class, a group or a client has a slope on its own rows only. Rows on
    which the same terms have slopes in the scores are put into the same chunks, and a chunk goes
    back through the model only for these terms: for two or three of them instead of K.
    """
    of_scores, scores = problem.of_scores, problem.scores
    assert of_scores is not None
    assert scores is not None
    count = len(rows["weight"])
    size = min(size, count)

    def in_scores(outputs: Array, batch: Batch) -> Array:
        weight = batch["weight"].astype(w.dtype)
        return jax.jacrev(lambda s: of_scores(s, batch) @ weight)(outputs)

    kinds = np.random.default_rng(0).integers(2**31, size=problem.combine.shape[1])

    def mark(marks: Array, begin: Array) -> tuple[Array, None]:
        start = jnp.minimum(begin, count - size)
        chunk = {k: jax.lax.dynamic_slice_in_dim(v, start, size) for k, v in rows.items()}
        sloped = (in_scores(scores(w, chunk), chunk) != 0).any(axis=-1)
        found = jnp.asarray(kinds, jnp.uint32) @ sloped.astype(jnp.uint32)
        return jax.lax.dynamic_update_slice_in_dim(marks, found, start, 0), None

    marks = jax.lax.scan(mark, jnp.zeros(count, jnp.uint32), jnp.arange(0, count, size))[0]
    order = jnp.argsort(marks)

    def slopes(chunk: Batch) -> Array:
        batch = {k: v[chunk["place"]] for k, v in rows.items()} | {"weight": chunk["weight"]}
        outputs, back = jax.vjp(lambda point: scores(point, batch), w)

        def one(slope: Array) -> Array:
            def pulled() -> Array:
                return jnp.asarray(back(slope)[0])

            return jax.lax.cond((slope != 0).any(), pulled, lambda: jnp.zeros_like(w))

        return jax.lax.map(one, in_scores(outputs, batch).astype(outputs.dtype))

    return jnp.asarray(over_chunks({"place": order, "weight": rows["weight"][order]}, slopes, size))


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
