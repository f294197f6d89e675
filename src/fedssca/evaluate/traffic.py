"""Bytes that rounds send, from the shapes of their messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.methods.algorithm import Algorithm, Message
from fedssca.methods.participation import cohort_of
from fedssca.problem.problem import Problem
from fedssca.rounds.broadcast import brief, whole
from fedssca.rounds.rounding import integer_form
from fedssca.rounds.shapes import batch_shape, h_shapes, round_shapes

__all__ = ["Sent", "Traffic", "shorter", "traffic", "traffic_in"]

CHUNK = 256
"""The number of rounds whose cohorts are drawn at a time."""


class Traffic(NamedTuple):
    """Bytes of rounds, all clients together."""

    up: int
    down: int
    peer: int

    def times(self, count: int) -> Traffic:
        """The bytes of so many times as much."""
        return Traffic(*(count * way for way in self))


Sent: TypeAlias = Callable[[int], Traffic]
"""A number of rounds -> the bytes that the first so many rounds of a run send."""


def traffic_in(problem: Problem, clients: Rows | Columns, algorithm: Algorithm) -> Sent:
    """What rounds send, from the shapes of their messages alone (nothing is trained).

    Of rounds with clients that hold rows, a client that answered the round before is sent less
    than others (`rounds.broadcast`), and after the first round messages may have fewer bits.
    """
    first = traffic(problem, clients, algorithm)
    asked, message = round_shapes(problem, clients, algorithm)
    short = brief(asked, algorithm) if isinstance(clients, Rows) else None
    if short is None:
        return first.times
    saved = _bytes(whole(asked)) - _bytes(short)
    there = _in_two_rounds(problem, clients, algorithm)
    later = first.up * _bytes(shorter(message, algorithm.bits)) // _bytes(message)

    def sent(rounds: int) -> Traffic:
        up = first.up + (rounds - 1) * later if rounds else 0
        return Traffic(up, first.down * rounds - saved * there(rounds), 0)

    return sent


def shorter(message: Message, bits: int) -> Message:
    """The shapes of a message after the first round, where its vectors have so many bits."""
    grid = jax.tree.map(lambda leaf: np.zeros(leaf.shape[:-1], np.int32), message.vectors)
    return integer_form(message, grid, bits)


def _in_two_rounds(
    problem: Problem, clients: Rows | Columns, algorithm: Algorithm
) -> Callable[[int], int]:
    """(rounds) -> how often a client is asked that answered the round before; in round 1 all do."""
    cohort = cohort_of(algorithm, problem)
    if cohort is None:
        return lambda rounds: clients.count * rounds
    start = algorithm.init(problem.start)
    turnout = jax.jit(jax.vmap(lambda done: algorithm.request(start._replace(round=done)).turnout))
    counted, last = [0], set(range(cohort.clients))

    def count(rounds: int) -> int:
        nonlocal last
        while len(counted) <= rounds:
            done = len(counted) - 1
            drawn = turnout(np.arange(done, done + CHUNK, dtype=np.int32))
            for asked, here in zip(*map(np.asarray, (drawn.asked, drawn.answers)), strict=True):
                counted.append(counted[-1] + len(last.intersection(asked.tolist())))
                last = set(asked[here].tolist())
        return counted[rounds]

    return count


def traffic(problem: Problem, clients: Rows | Columns, algorithm: Algorithm) -> Traffic:
    """What a round sends in which everybody is sent all of the request, and nothing is rounded."""
    w = jax.ShapeDtypeStruct(problem.start.shape, problem.start.dtype)
    batch = batch_shape(clients, algorithm.batch * algorithm.steps, w.dtype)
    asked, message = round_shapes(problem, clients, algorithm)
    if isinstance(clients, Rows):
        cohort = cohort_of(algorithm, problem)
        asked_of = cohort.size if cohort else clients.count
        return Traffic(asked_of * _bytes(message), asked_of * _bytes(whole(asked)), 0)
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
