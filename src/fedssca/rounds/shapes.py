"""The shapes of what travels in a round, found without computing anything."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.methods.algorithm import Algorithm
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.problem.programs import once_per_problem

__all__ = ["batch_shape", "h_shapes", "round_shapes"]


def round_shapes(
    problem: Problem, clients: Rows | Columns, algorithm: Algorithm
) -> tuple[Any, Any]:
    """The shapes of what the server publishes in a round, and of the message that comes back.

    A method is traced for them, so they are found once for a problem, a method and a form of rows.
    What the terms compute does not matter, and they are not differentiated.
    """
    batch = batch_shape(clients, algorithm.batch * algorithm.steps, problem.start.dtype)
    return _round_shapes(problem, algorithm, tuple(sorted(batch.items())))


@once_per_problem
def _round_shapes(
    problem: Problem, algorithm: Algorithm, batch: tuple[tuple[str, Any], ...]
) -> tuple[Any, Any]:
    w = jax.ShapeDtypeStruct(problem.start.shape, problem.start.dtype)
    asked = jax.eval_shape(lambda w: algorithm.request(algorithm.init(w)), w)._replace(turnout=())

    def terms(w: Array, batch: Batch) -> Array:
        shape = jax.eval_shape(problem.terms, w, batch)
        return jnp.broadcast_to(w.sum().astype(shape.dtype), shape.shape)

    reply = jax.eval_shape(lambda r, b: algorithm.reply(terms, r, b), asked, dict(batch))
    return asked, reply


def h_shapes(problem: Problem, clients: Columns, rows: int) -> list[Any]:
    """The shapes of the h_i of `rows` rows, one for each party."""
    split, kind = problem.vertical, clients.columns["x"].dtype
    assert split is not None
    return [
        jax.eval_shape(
            h,
            jax.ShapeDtypeStruct((len(split.blocks[i + 1]),), problem.start.dtype),
            jax.ShapeDtypeStruct((rows, len(split.features[i])), kind),
        )
        for i, h in enumerate(split.locals)
    ]


def batch_shape(clients: Rows | Columns, rows: int, dtype: Any) -> dict[str, Any]:
    """The shapes of a batch of `rows` rows, with the clients' numbers and the weights."""
    shapes = {
        name: jax.ShapeDtypeStruct((rows, *column.shape[1:]), column.dtype)
        for name, column in clients.columns.items()
    }
    shapes["weight"] = jax.ShapeDtypeStruct((rows,), dtype)
    shapes["client"] = jax.ShapeDtypeStruct((rows,), np.int32)
    return shapes
