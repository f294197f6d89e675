"""Rounds over rows that arrive: a buffer of some rounds is filled, then runs as one program.

The same traced round as in `rounds.fused`; only where the rows of a round lie differs: there a
draw from all rows of a client, here the next ones of the buffer. While one buffer computes the next
one is filled. There are never more than these two, and the rest of one block per client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.sampling import Drawn
from fedssca.data.stream import Streams
from fedssca.methods.algorithm import Algorithm, State, Turnout
from fedssca.methods.participation import cohort_of
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.problem.programs import shared
from fedssca.rounds.check import check_fit
from fedssca.rounds.fused import Joined
from fedssca.rounds.loop import one_round

__all__ = ["Ended", "Streaming"]

BUFFER = 4_000_000
"""Bytes of rows that are buffered before they are used: a large buffer makes calls rare, a small
one fits into the cache. A round is never divided, so one that needs more gets a larger buffer."""

Asked: TypeAlias = Callable[[np.ndarray], Turnout]
"""Rounds done before each round -> who is asked in it, and who answers."""


class Ended(NamedTuple):
    """Which source ended, and after how many rows."""

    client: int
    rows: int


class Streaming:
    """A `Runtime` that takes each row once, in the order in which it comes.

    In a round every client that is asked uses the next steps * batch rows of its source. Of a
    cohort, those who are not asked, and those who stay silent, keep theirs for their next turn.
    When a source ends, `advance` stops at the last complete round and `ended` says why. The cohort
    must be a function of the round alone, as that of `participation` is.
    """

    def __init__(self, problem: Problem, clients: Streams, algorithm: Algorithm) -> None:
        check_fit(problem, clients, algorithm)
        self.ended: Ended | None = None
        self._clients = clients
        cohort = cohort_of(algorithm, problem)
        self._places = cohort.size if cohort else clients.count
        self._rows = rows = algorithm.batch * algorithm.steps
        self._blank = {name: column[:1] for name, column in clients.check.columns.items()}
        one_row = sum(column.nbytes for column in self._blank.values())
        self._capacity = capacity = max(1, BUFFER // (one_row * rows * self._places))
        start = algorithm.init(problem.start)
        self._turnout: Asked = jax.jit(
            jax.vmap(lambda done: algorithm.request(start._replace(round=done)).turnout)
        )
        first_row = np.arange(self._places)[:, None] * capacity * rows + np.arange(rows)

        def advance(columns: Batch, share: Array, state: State, until: Array) -> State:
            begun = state.round

            def one(now: State) -> State:
                index = jnp.asarray(first_row, jnp.int32) + (now.round - begun) * rows
                parties = Joined(problem, algorithm, columns, share, lambda request: Drawn(index))
                return one_round(algorithm, parties, now)

            return jax.lax.while_loop(lambda now: now.round < until, one, state)

        self._cohort = cohort is not None
        self._advance = shared(advance)

    def advance(self, state: State, until: int) -> State:
        """Rounds until `until` updates are done, or a source has ended."""
        done = int(state.round)
        while done < until and self.ended is None:
            columns, count = self._pull(done, min(self._capacity, until - done))
            if count == 0:
                break
            before, done = state, done + count
            state = self._advance(columns, self._clients.share, before, done)
            jax.block_until_ready(before.round)
        return state

    def _pull(self, done: int, rounds: int) -> tuple[dict[str, np.ndarray], int]:
        """A buffer with the rows of the coming rounds, and how many of them are complete."""
        # New arrays each time: a program may still read the last ones.
        shape = self._places, self._capacity * self._rows
        held = {
            name: np.empty((*shape, *column.shape[1:]), column.dtype)
            for name, column in self._blank.items()
        }
        fill = self._pull_cohort if self._cohort else self._pull_all
        count = fill(held, done, rounds)
        return {name: v.reshape(-1, *v.shape[2:]) for name, v in held.items()}, count

    def _pull_all(self, held: Batch, done: int, rounds: int) -> int:
        """All clients take part: the rows of all rounds, client by client."""
        del done
        for place in range(self._clients.count):
            rounds = self._take(place, held, place, 0, rounds)
        return rounds

    def _pull_cohort(self, held: Batch, done: int, rounds: int) -> int:
        """Round by round, from the clients that will answer; the rows of others have no effect."""
        coming = np.arange(done, done + self._capacity, dtype=np.int32)
        turnout = self._turnout(coming)
        asked, answers = np.asarray(turnout.asked), np.asarray(turnout.answers)
        for number in range(rounds):
            for place, client in enumerate(asked[number].tolist()):
                if not answers[number, place]:
                    here = slice(number * self._rows, (number + 1) * self._rows)
                    for name, row in self._blank.items():
                        held[name][place, here] = row
                elif not self._take(client, held, place, number, 1):
                    return number
        return rounds

    def _take(self, client: int, held: Batch, place: int, first: int, rounds: int) -> int:
        """Rows for `rounds` rounds from the `first` on; how many rounds there were."""
        here = slice(first * self._rows, (first + rounds) * self._rows)
        reader = self._clients.readers[client]
        complete = reader.fill({name: v[place, here] for name, v in held.items()}) // self._rows
        if complete < rounds:
            self.ended = Ended(client, reader.taken)
        return complete
