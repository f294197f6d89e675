"""Clipping, a combinator: no unit (a sample, or a client) counts for more than a bound.

The message of a unit that weighs 1 has values v_1..v_m and gradients g, the rows of all terms as
one long vector. What counts of it is

    g min(1, C / |g|)    and    min(V, max(-V, v_j)),       C = `clip`, V = `value_clip`.

The rows share one factor: a ball of radius C holds more than a product of balls with the same
length in all, and the terms' gradients keep their proportions. Values keep a bound of their own
each, so that what a constraint measures does not depend on how steep a sample is: the only bias is
that of values beyond V, which the user can see and rule out.

Where clients send a change of w, a `LocalChange` says how it carries a gradient: the gradient that
would have led there is clipped, so C means the same whatever the rate and the number of steps.

Parties that hold columns clip their own blocks, unseen by each other, each to C / sqrt(blocks):
together a sample again counts at most C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.memory import summed
from fedssca.methods.algorithm import Algorithm, LocalChange, Message, Request
from fedssca.privacy.noise.ghost import Tapped, places, shrink, tapped
from fedssca.problem.problem import Array, Batch, Terms

__all__ = ["ReadChange", "per_client", "per_sample"]

ReadChange: TypeAlias = Callable[[Request], LocalChange]
"""A request -> how the change of w that a client sends carries a gradient."""

ROOM = 4_000_000
"""Bytes of single samples' gradients that are held at a time: they stay near the processor."""
OWN = ("weight", "share")
"""What a batch says of its rows besides the data."""


def per_sample(
    algorithm: Algorithm,
    clip: float,
    value_clip: float,
    blocks: Sequence[np.ndarray] = (),
    change: ReadChange | None = None,
) -> Algorithm:
    """`algorithm` whose message is sum_n weight_n (clipped message of sample n).

    For messages that are sums over samples. `blocks` are the positions of w of each party that
    holds columns; `change` is given where clients send changes of w.
    """
    bound = clip / np.sqrt(max(len(blocks), 1))
    size = sum(map(len, blocks))

    def reply(terms: Terms, request: Request, batch: Batch) -> Message:
        whose = _owners(blocks, request.w) if request.w.size == size else None
        still = change(request) if change else None

        def alone(sample: Batch) -> Message:
            row = jax.tree.map(lambda leaf: leaf[None], sample)
            row["weight"] = jnp.ones(1, request.w.dtype)
            return algorithm.reply(terms, request, row)

        def some(rows: Batch) -> Message:
            weight = rows["weight"].astype(request.w.dtype)
            each = jax.vmap(alone)({k: v for k, v in rows.items() if k not in OWN})
            # Held back, or the gradients would be computed anew for each of their two uses.
            slopes = jax.lax.optimization_barrier(_centred(each.vectors, still))
            squares = [_squares(leaf, whose) for leaf in jax.tree.leaves(slopes)]
            factor = weight[:, None] * shrink(jnp.asarray(sum(squares)), bound)
            return Message(
                jax.tree.map(lambda v: weight @ jnp.clip(v, -value_clip, value_clip), each.scalars),
                jax.tree.map(lambda leaf: _weighted(factor, leaf, whose), slopes),
            )

        def joint(model: Tapped, rows: Batch) -> Message:
            weight = jnp.asarray(rows["weight"], request.w.dtype)
            whole, even = weight.sum(), jnp.full_like(weight, 1 / len(weight))
            # Rows that weigh nothing at all have a mean too, which then counts nothing.
            told = {k: v for k, v in rows.items() if k != "share"}
            told["weight"] = jnp.where(whole > 0, weight / whole, even)
            mean = algorithm.reply(tapped(model, bound, value_clip), request, told)
            mean = mean._replace(vectors=_centred(mean.vectors, still))
            return jax.tree.map(lambda leaf: whole * leaf, mean)

        # What clients weigh in all is public. The rows of a Poisson sample are not: their number
        # must not change what the server knows anyway.
        weight = batch["share" if "share" in batch else "weight"].sum().astype(request.w.dtype)
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), batch)
        shape = jax.eval_shape(alone, one).vectors
        size_of = sum(leaf.size for leaf in jax.tree.leaves(shape))
        model = None
        if algorithm.one_gradient and size_of == request.w.size and whose is None:
            model = places(terms, request.w, {k: v for k, v in one.items() if k != "share"})
        each, held = (some, size_of) if model is None else (partial(joint, model), model.held)
        room = max(held, 1) * request.w.dtype.itemsize
        parts = _parts(batch, max(1, ROOM // room))
        total = summed(each, parts) if len(parts["weight"]) > 1 else each(batch)
        return total._replace(vectors=_placed(total.vectors, still, weight))

    return algorithm._replace(reply=reply)


def per_client(
    algorithm: Algorithm, clip: float, value_clip: float, change: ReadChange | None = None
) -> Algorithm:
    """`algorithm` whose message is N_i / N (clipped message of client i).

    Such a message is no sum over samples: it must be computed for one client at a time.
    """

    def reply(terms: Terms, request: Request, batch: Batch) -> Message:
        message = algorithm.reply(terms, request, batch)
        still = change(request) if change else None
        share = batch["weight"].sum().astype(request.w.dtype) / algorithm.steps
        mean = jax.tree.map(lambda leaf: leaf / share, message)
        slopes = _centred(mean.vectors, still)
        squares = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(slopes))
        factor = share * shrink(jnp.asarray(squares), clip)
        return Message(
            jax.tree.map(lambda v: share * jnp.clip(v, -value_clip, value_clip), mean.scalars),
            _placed(jax.tree.map(lambda leaf: factor * leaf, slopes), still, share),
        )

    return algorithm._replace(reply=reply)


def _centred(vectors: Any, still: LocalChange | None) -> Any:
    """The gradients in vectors that may be changes of w."""
    if still is None:
        return vectors
    return jax.tree.map(lambda leaf: (leaf - still.centre) / still.unit, vectors)


def _placed(slopes: Any, still: LocalChange | None, share: Array) -> Any:
    """The way back, for gradients that weigh `share` in all."""
    if still is None:
        return slopes
    return jax.tree.map(lambda leaf: share * still.centre + still.unit * leaf, slopes)


def _owners(blocks: Sequence[np.ndarray], w: Array) -> Array:
    """(positions, blocks): 1 where a position belongs to a block."""
    whose = np.zeros((w.size, len(blocks)), bool)
    for block, positions in enumerate(blocks):
        whose[positions, block] = True
    return jnp.asarray(whose, w.dtype)


def _squares(leaf: Array, whose: Array | None) -> Array:
    """|g|^2 of every sample, in each block: (samples, blocks)."""
    if whose is None:
        flat = leaf.reshape(len(leaf), -1)
        return jnp.einsum("nd,nd->n", flat, flat)[:, None]
    rows = jnp.square(leaf).reshape(len(leaf), -1, leaf.shape[-1]).sum(1)
    return rows @ whose


def _weighted(factor: Array, leaf: Array, whose: Array | None) -> Array:
    """sum_n factor_n g_n, each block by its own factors."""
    if whose is None:
        return jnp.tensordot(factor[:, 0], leaf, 1)
    return jnp.einsum("nd,n...d->...d", factor @ whose.T, leaf)


def _parts(batch: Batch, rows: int) -> Batch:
    """The batch in parts of at most so many rows; the last row fills up, and counts nothing."""
    count = len(batch["weight"])
    parts = -(-count // rows)
    size = -(-count // parts)

    def cut(leaf: Array, fill: Callable[[Array], Array]) -> Array:
        extra = jnp.repeat(fill(leaf[-1:]), parts * size - count, axis=0)
        return jnp.concatenate([leaf, extra]).reshape(parts, size, *leaf.shape[1:])

    cuts = jax.tree.map(lambda leaf: cut(jnp.asarray(leaf), lambda last: last), batch)
    return cuts | {"weight": cut(jnp.asarray(batch["weight"]), jnp.zeros_like)}
