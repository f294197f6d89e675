"""Bytes that one round sends, from the shapes of its messages."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.participation import cohort_of
from fedssca.problem.problem import Problem
from fedssca.rounds.shapes import batch_shape, h_shapes, round_shapes

__all__ = ["Traffic", "traffic"]


class Traffic(NamedTuple):
    """Bytes of one round, all clients together."""

    up: int
    down: int
    peer: int


def traffic(problem: Problem, clients: Rows | Columns, algorithm: Algorithm) -> Traffic:
    """What one round sends, from the shapes of its messages alone (nothing is computed)."""
    w = jax.ShapeDtypeStruct(problem.start.shape, problem.start.dtype)
    batch = batch_shape(clients, algorithm.batch * algorithm.steps, w.dtype)
    asked, message = round_shapes(problem, clients, algorithm)
    if isinstance(clients, Rows):
        cohort = cohort_of(algorithm, problem)
        asked_of = cohort.size if cohort else clients.count
        return Traffic(asked_of * _bytes(message), asked_of * _bytes(asked), 0)
    assert problem.vertical is not None
    split, count, rows = problem.vertical, clients.count, algorithm.batch
    top = w.dtype.itemsize * len(split.blocks[0])
    down = count * (_bytes(asked) - _bytes(w) + 4 * rows + top) + _bytes(w) - top
    hs = h_shapes(problem, clients, rows)
    if clients.collection == "open":
        columns = {
            name: shape for name, shape in batch.items() if name not in ("x", "weight", "client")
        }
        raw = (
            {"x": batch["x"]}
            if split.linear
            else [
                jax.ShapeDtypeStruct((*h.shape, len(block)), w.dtype)
                for h, block in zip(hs, split.blocks[1:], strict=True)
            ]
        )
        return Traffic(_bytes(hs) + _bytes(raw) + _bytes(columns), down, 0)
    holder = clients.label_holder
    if holder is None:
        return Traffic(_bytes(message), down, (count - 1) * _bytes(hs))
    others = _bytes([h for i, h in enumerate(hs) if i != holder])
    return Traffic(_bytes(message), down, others * (1 + problem.combine.shape[1]))


def _bytes(tree: Any) -> int:
    return sum(int(np.prod(s.shape)) * s.dtype.itemsize for s in jax.tree.leaves(tree))
