"""All clients in one compiled program: many rounds a call, one matrix product for all batches.

Where the message is a sum over samples, the batches of all clients are joined (every sample carries
its weight N_i / (B N)), which gives the same sum. Where clients take local steps they run one after
another. Parties that hold columns are joined into their centralised form, which has the
same message. `runtime.local` is the twin that moves real messages; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.aggregate import plain_sum
from fedssca.algorithm import Algorithm, Message, Request, State
from fedssca.data.split import Columns, Rows
from fedssca.loop import one_round
from fedssca.problem import Array, Batch, Problem
from fedssca.runtime.check import check_fit
from fedssca.sampling import batch_indices

__all__ = ["Fused"]


class Fused:
    """A `Runtime`: rounds run inside one `while_loop`, so any number of them is one program.

    The loop's length is an argument, not a constant: stopping for an evaluation or a checkpoint
    changes neither the program nor a single bit of the trajectory.
    """

    def __init__(
        self, problem: Problem, clients: Rows | Columns, algorithm: Algorithm, seed: int
    ) -> None:
        check_fit(problem, clients, algorithm)
        self._columns = {name: jnp.asarray(column) for name, column in clients.columns.items()}

        def advance(columns: Batch, state: State, until: Array) -> State:
            parties = _Traced(problem, clients, algorithm, seed, columns)
            return jax.lax.while_loop(
                lambda s: s.round < until, lambda s: one_round(algorithm, parties, s), state
            )

        self._advance = jax.jit(advance)

    def advance(self, state: State, until: int) -> State:
        """Rounds until `until` updates are done."""
        return self._advance(self._columns, state, until)


class _Traced:
    """The `Parties` of a traced round: one call, one message, already summed."""

    phases: tuple[str, ...] = ("reply",)
    aggregator = plain_sum

    def __init__(
        self,
        problem: Problem,
        clients: Rows | Columns,
        algorithm: Algorithm,
        seed: int,
        columns: Batch,
    ) -> None:
        self._problem, self._algorithm, self._seed = problem, algorithm, seed
        self._columns = columns
        sizes = clients.sizes if isinstance(clients, Rows) else (clients.total,)
        self._sizes = np.asarray(sizes)
        self._offsets = np.concatenate([[0], np.cumsum(self._sizes)[:-1]]).astype(np.int32)

    def call(self, phase: str, request: Request) -> Sequence[Message]:
        """The batches of round t, joined (or side by side for local steps)."""
        del phase
        algorithm, numbers = self._algorithm, np.arange(len(self._sizes), dtype=np.int32)
        index = batch_indices(
            self._seed, request.round, numbers, self._sizes, algorithm.batch, algorithm.steps
        )
        weights = self._sizes / (algorithm.batch * self._sizes.sum())
        index = index + self._offsets[:, None]
        extra = {
            "client": jnp.broadcast_to(numbers[:, None], index.shape),
            "weight": jnp.broadcast_to(jnp.asarray(weights, request.w.dtype)[:, None], index.shape),
        }
        if algorithm.pooled:
            index, extra = index.ravel(), {name: value.ravel() for name, value in extra.items()}
        batch = {name: column[index] for name, column in self._columns.items()} | extra
        if algorithm.pooled:
            return [algorithm.reply(self._problem.terms, request, batch)]

        def one(own: Batch) -> Message:
            return algorithm.reply(self._problem.terms, request, own)

        return [jax.tree.map(lambda leaf: leaf.sum(0), jax.lax.map(one, batch))]
