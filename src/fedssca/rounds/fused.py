"""All clients in one compiled program: many rounds per call, one matrix product for all batches.

Where the message is a sum over samples, the batches of all clients are joined (every sample carries
its weight N_i / (B N)), which gives the same sum; large ones go through the products tile by tile,
so that images are converted from bytes only shortly before they are used. Where clients take local
steps they are computed one after another, because the parameters of one client fit into the cache
and those of all clients do not. Parties that hold columns are joined into their centralised form,
which has the same message. `rounds.in_process` moves real messages instead; tests check that both
give the same results.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.memory import on_device, summed
from fedssca.data.sampling import Drawn, Population, drawn_rows, places_for, words
from fedssca.data.split import Columns, Rows
from fedssca.methods.algorithm import Algorithm, Message, Request, State
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.problem.programs import row_bytes, shared
from fedssca.rounds.aggregate import Combine, plain_sum
from fedssca.rounds.check import check_fit
from fedssca.rounds.loop import one_round
from fedssca.rounds.perturb import Perturbation, unperturbed
from fedssca.rounds.rounding import FULL

__all__ = ["Draw", "Fused", "Joined"]

Draw: TypeAlias = Callable[[Request], Drawn]
"""A request -> the rows of its batches, (clients asked, steps * batch or places)."""

TILE = 3_000
"""Rows that go through one product together, at most."""
ROOM = 32_000_000
"""Bytes of all that a network computes of these rows: most of it is still in the cache when it is
used again. A convolutional network computes a hundred times as much of a row as a dense one."""


class Fused:
    """A `Runtime`: rounds run inside one `while_loop`, so any number of them is one program.

    The loop's length and the seed are arguments, not constants: stopping for an evaluation or a
    checkpoint changes neither the program nor a single bit of the trajectory.
    """

    def __init__(
        self,
        problem: Problem,
        clients: Rows | Columns,
        algorithm: Algorithm,
        seed: int,
        perturbation: Perturbation = unperturbed,
    ) -> None:
        check_fit(problem, clients, algorithm)
        self._columns = on_device(clients.columns)
        self._table = _table(clients)
        self._seed = words(seed)
        people = Population.of(self._table["size"])

        def advance(columns: Batch, table: Batch, seed: Array, state: State, until: Array) -> State:
            there = people._replace(size=table["size"][:, None], side=table["side"][:, None])
            draw = _at_random(algorithm, seed, there, table)
            parties = Joined(problem, algorithm, columns, table["share"], draw, perturbation, seed)
            return jax.lax.while_loop(
                lambda s: s.round < until, lambda s: one_round(algorithm, parties, s), state
            )

        self._advance = shared(advance)

    def twin(self, clients: Rows | Columns, seed: int) -> Fused:
        """The same program, compiled once, for another seed and clients of the same sizes."""
        other = copy.copy(self)
        other._columns, other._table = on_device(clients.columns), _table(clients)
        other._seed = words(seed)
        return other

    def advance(self, state: State, until: int) -> State:
        """Rounds until `until` updates are done; where they are already, nothing is compiled."""
        if int(state.round) >= until:
            return state
        return self._advance(self._columns, self._table, self._seed, state, until)


def _table(clients: Rows | Columns) -> dict[str, np.ndarray]:
    """The rows of each client, where they begin, and N_i / N; columns count as one client.

    It is an argument of the program: as constants, a million clients would be compiled in.
    """
    sizes = np.asarray(clients.sizes if isinstance(clients, Rows) else (clients.total,))
    order = clients.order if isinstance(clients, Rows) else None
    return ({} if order is None else {"order": order}) | {
        "size": sizes.astype(np.uint32),
        "side": Population.of(sizes).side[:, 0],
        "offset": np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32),
        "share": sizes / sizes.sum(),
    }


def _at_random(algorithm: Algorithm, seed: Array, people: Population, table: Batch) -> Draw:
    """Draw from the rows of each client, which begin at its offset."""

    def draw(request: Request) -> Drawn:
        first, who = table["offset"], people
        numbers = jnp.arange(len(first))
        if request.turnout:
            numbers = request.turnout.asked
            who, first = people.take(numbers), first[numbers]
        how = algorithm.batch, algorithm.steps, algorithm.places
        drawn = drawn_rows(seed, request.round, numbers, who, *how)
        place = drawn.rows + first[:, None]
        return drawn._replace(rows=table["order"][place] if "order" in table else place)

    return draw


class Joined:
    """The `Parties` of a traced round: one call, one message, already summed.

    `draw` says where the rows of a round are in `columns`; client i weighs `share[i]`.
    """

    phases: tuple[str, ...] = ("reply",)

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        columns: Batch,
        share: Array,
        draw: Draw,
        perturbation: Perturbation = unperturbed,
        seed: Array | None = None,
    ) -> None:
        """`seed`, as two words, is for a perturbation that draws random numbers."""
        self._perturbation = perturbation
        alone = perturbation.separate or algorithm.apart or algorithm.bits < FULL
        self._joined = algorithm.steps == 1 and not alone
        self.combine: Combine = plain_sum
        self._seed = seed
        self._problem, self._algorithm, self._draw = problem, algorithm, draw
        self._columns, self._share = columns, share

    def call(self, phase: str, request: Request) -> Sequence[Message]:
        """The summed message of round t: of the joined batches, or client by client.

        A method that needs the messages of single clients gets one row for each of them.
        """
        del phase
        total = self._sum(request)
        share = self._share.astype(request.w.dtype)
        if request.turnout:
            share = jnp.where(request.turnout.answers, share[request.turnout.asked], 0)
        return [self._perturbation.joint(total, request, share, self._seed)]

    def _sum(self, request: Request) -> Message:
        algorithm, share = self._algorithm, self._share.astype(request.w.dtype)
        numbers, answers = jnp.arange(len(share)), jnp.ones(len(share), bool)
        if request.turnout:
            numbers, answers = request.turnout.asked, request.turnout.answers
            share = share[numbers]
        index, present = self._draw(request)
        drawn: Batch = {
            "row": index,
            "client": jnp.broadcast_to(numbers[:, None], index.shape),
            "weight": jnp.broadcast_to(share[:, None] / algorithm.batch, index.shape),
        }
        asked = request._replace(turnout=())

        def reply(drawn: Batch) -> Message:
            batch = {name: column[drawn["row"]] for name, column in self._columns.items()}
            extra = {name: column for name, column in drawn.items() if name != "row"}
            return algorithm.reply(self._problem.terms, asked, batch | extra)

        def answer(one: tuple[Array, Batch]) -> Message:
            return jax.tree.map(lambda leaf: jnp.where(one[0], leaf, 0), reply(one[1]))

        if self._joined:
            drawn["weight"] = jnp.where(answers[:, None], drawn["weight"], 0)
            drawn = jax.tree.map(jnp.ravel, drawn)
            if present is not None:
                drawn = _packed(drawn, present.ravel(), len(share) * algorithm.batch)
                heavy = jnp.where(answers, share, 0).sum()
                drawn["share"] = jnp.full_like(drawn["weight"], heavy / len(drawn["row"]))
            extra = {name: column for name, column in drawn.items() if name != "row"}
            needed = row_bytes(self._problem, self._columns | extra)
            tile = min(TILE, max(1, ROOM // max(needed, 1)))
            whole = len(drawn["row"]) <= tile
            return reply(drawn) if whole else summed(reply, _tiles(drawn, tile))
        if algorithm.apart:
            each: Message = jax.lax.map(answer, (answers, drawn))
            return each
        total: Message = summed(answer, (answers, drawn))
        return total


def _packed(drawn: Batch, present: Array, mean: int) -> Batch:
    """The rows that are present first, in as many places as so many rows on average need.

    Fewer places are empty than if every client had places of its own.
    """
    room = min(len(present), places_for([1000 * mean], mean))
    order = jnp.argsort(~present, stable=True)[:room]
    kept = jax.tree.map(lambda leaf: leaf[order], drawn)
    return kept | {"weight": jnp.where(present[order], kept["weight"], 0)}


def _tiles(drawn: Batch, tile: int) -> Batch:
    """(tiles, rows of one tile), the last one filled up with rows of weight 0."""
    rows = len(drawn["row"])
    count = -(-rows // tile)
    size = -(-rows // count)
    return jax.tree.map(
        lambda leaf: jnp.pad(leaf, (0, count * size - rows)).reshape(count, size), drawn
    )
