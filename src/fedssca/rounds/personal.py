"""Personal parts of a model: parameters that stay at a client that holds rows.

The parameters of client i are (w, p_i): w is common and travels as ever, p_i is trained where the
rows are and is in no message. In a round client i computes the message of the method at (w(t), p_i)
for both, sends the part about w, and takes a step with the part about p_i:

    p_i <- p_i - rate(t) (g_i + 2 c p_i)    where the message holds gradients
    p_i <- p_i + change_i                   where it holds the change of local steps

g_i is the gradient of sum_m a_m F_m / sum_m |a_m| over the client's own batch, with the weights a_m
that the server publishes, and c the same mean of the known[m]. A p_i belongs to the point w at
which it was evaluated, so that a point that is returned later is returned with it.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.methods.algorithm import Algorithm, Message, Request, State
from fedssca.methods.schedule import Schedule
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.rounds.broadcast import RequestMemory
from fedssca.rounds.client import SERVER, Outgoing, RowClient
from fedssca.rounds.loop import Runtime
from fedssca.rounds.rounding import as_integers

__all__ = [
    "Carried",
    "ClientView",
    "FollowingClient",
    "OwnPart",
    "PersonalParts",
    "PersonalRounds",
    "carrying",
    "digest_of_point",
    "row_client",
    "view_of",
]

MOST = 500
"""The number of points whose p_i a client remembers."""


class OwnPart:
    """The p_i of one client: now, and at the points w that were evaluated."""

    def __init__(self, start: np.ndarray) -> None:
        self.now = np.asarray(start)
        self._at: dict[str, np.ndarray] = {}
        self._file: Path | None = None

    def at(self, w: Any) -> np.ndarray:
        """p_i at the point w: as it was when w was first evaluated."""
        point = digest_of_point(w)
        if point not in self._at:
            if len(self._at) >= MOST:
                del self._at[next(iter(self._at))]
            self._at[point] = self.now
            self._save()
        return self._at[point]

    def move(self, now: Any) -> None:
        """Take a step."""
        self.now = np.asarray(now)
        self._save()

    def keep_in(self, file: Path) -> None:
        """Keep it in a file from now on, and continue with what the file holds."""
        self._file = file
        if file.exists():
            with np.load(file, allow_pickle=False) as held:
                self.now = held["now"]
                self._at = dict(zip(held["points"].tolist(), held["parts"], strict=True))

    def content(self) -> bytes:
        """What a file of it holds: `now`, and for each of the `points` its row of `parts`."""
        made = io.BytesIO()
        parts = np.stack(list(self._at.values()) or [self.now])[: len(self._at)]
        np.savez(made, now=self.now, points=np.array(list(self._at), "U64"), parts=parts)
        return made.getvalue()

    def _save(self) -> None:
        if self._file is None:
            return
        new = self._file.with_suffix(".new")
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.write_bytes(self.content())
        os.replace(new, self._file)


def digest_of_point(w: Any) -> str:
    """Identifies a point w, in whatever precision it is stored."""
    return hashlib.sha256(np.ascontiguousarray(w, np.float64).tobytes()).hexdigest()


class PersonalParts:
    """The personal parts of all clients that this process knows, and how they are trained."""

    def __init__(self, whole: Problem, shared: np.ndarray, rate: Schedule) -> None:
        """`whole` is the problem of one client, in which p_i is trained too; w has the entries
        `shared` of its parameters."""
        self.whole, self.shared, self.rate = whole, shared, rate
        self.places = np.setdiff1d(np.arange(whole.dimension), shared)
        self._parts: dict[int, OwnPart] = {}

    def part(self, number: int) -> OwnPart:
        """The part of client `number`; all begin alike."""
        if number not in self._parts:
            self._parts[number] = OwnPart(np.asarray(self.whole.start[self.places]))
        return self._parts[number]

    def joined(self, w: Any, own: Any) -> Array:
        """All parameters (w, p_i) of a client."""
        return self._joined(jnp.asarray(w), jnp.asarray(own))

    @cached_property
    def _joined(self) -> Callable[[Array, Array], Array]:
        start = self.whole.start
        return jax.jit(lambda w, own: start.at[self.shared].set(w).at[self.places].set(own))

    @property
    def known(self) -> dict[int, OwnPart]:
        """The parts that this process has used; none at the server of a deployment."""
        return self._parts

    def stack(self, clients: int) -> np.ndarray:
        """The p_i of so many clients, one below the other."""
        return np.stack([self.part(number).now for number in range(clients)])

    def load(self, stacked: Any) -> None:
        """Continue with these p_i."""
        for number, own in enumerate(np.asarray(stacked)):
            self.part(number).now = own

    @cached_property
    def step(self) -> Callable[[Array, Request, Any, Any], Array]:
        """(p_i, request, vectors of the message about p_i, N_i / N) -> the next p_i."""
        known, combine = self.whole.known, self.whole.combine

        @jax.jit
        def step(own: Array, asked: Request, vectors: Any, share: Array) -> Array:
            if "change" in vectors:
                return own + vectors["change"] / share
            slope, weights = vectors["gradient"] / share, jnp.asarray([1.0], own.dtype)
            if slope.ndim == 2:
                slope = jnp.asarray(combine[0], own.dtype) @ slope
            else:
                weights = asked.weights
            mix = weights @ jnp.asarray(known[: len(weights)], own.dtype)
            total = jnp.abs(weights).sum()
            lr = self.rate(asked.round).astype(own.dtype)
            return own - lr * (slope + 2 * mix * own) / total

        return step


class PersonalClient:
    """A client with rows and a personal part; what it sends is about the common part only."""

    def __init__(self, client: RowClient, parts: PersonalParts, own: OwnPart, share: float) -> None:
        self.number, self._client, self._parts = client.number, client, parts
        self._own, self._share = own, share

    def handle(self, phase: str, request: Request) -> Outgoing:
        """Answer a request of the server, and train the personal part; probes leave it alone."""
        parts = self._parts
        whole = request._replace(w=parts.joined(request.w, self._own.now))
        message: Message = self._client.handle(phase, whole)[SERVER]
        if int(request.round) > 0:
            about = jax.tree.map(lambda leaf: leaf[..., parts.places], message.vectors)
            self._own.move(parts.step(jnp.asarray(self._own.now), request, about, self._share))
        sent = jax.tree.map(lambda leaf: leaf[..., parts.shared], message.vectors)
        return {SERVER: message._replace(vectors=sent)}


class FollowingClient:
    """A client with rows that completes what the server sends before it answers."""

    def __init__(
        self, client: RowClient | PersonalClient, known_requests: RequestMemory, bits: int
    ) -> None:
        self.number, self._client, self._known = client.number, client, known_requests
        self._bits = bits

    def handle(self, phase: str, request: Request) -> Outgoing:
        """Answer a request of the server, or what it sends of one; the message as it is sent."""
        asked = self._known.complete(request)
        message: Message = self._client.handle(phase, asked)[SERVER]
        return {SERVER: as_integers(message, asked.grid, self._bits)}


def row_client(
    number: int,
    problem: Problem,
    algorithm: Algorithm,
    rows: Batch,
    total: int,
    seed: int,
    *more: Any,
    known_requests: RequestMemory | None = None,
) -> FollowingClient:
    """The client that holds these rows, with a personal part if the problem has one.

    `known_requests` has what it knows of requests already.
    """
    parts: PersonalParts | None = problem.personal
    known_requests = known_requests or RequestMemory(problem, algorithm)
    if parts is None:
        plain = RowClient(number, problem, algorithm, rows, total, seed, *more)
        return FollowingClient(plain, known_requests, algorithm.bits)
    client = RowClient(number, parts.whole, algorithm, rows, total, seed, *more)
    own = PersonalClient(client, parts, parts.part(number), len(rows["y"]) / total)
    return FollowingClient(own, known_requests, algorithm.bits)


class Carried(NamedTuple):
    """The memory of a method, and the p_i of all simulated clients, (clients, entries)."""

    method: Any
    parts: Array


def carrying(algorithm: Algorithm, parts: PersonalParts, clients: int) -> Algorithm:
    """The algorithm whose state has room for the p_i, so that checkpoints of simulations have them.

    At the server of a deployment they stay as they began: sites keep their own.
    """

    def bare(state: State) -> State:
        return state._replace(memory=state.memory.method)

    def init(w: Array) -> State:
        begun = algorithm.init(w)
        first = jnp.asarray(parts.whole.start[parts.places], w.dtype)
        stacked = jnp.broadcast_to(first, (clients, first.size))
        return begun._replace(memory=Carried(begun.memory, stacked))

    def update(state: State, total: Message) -> State:
        new = algorithm.update(bare(state), total)
        return new._replace(memory=Carried(new.memory, state.memory.parts))

    return algorithm._replace(
        init=init, request=lambda state: algorithm.request(bare(state)), update=update
    )


class PersonalRounds:
    """A `Runtime`: simulated rounds, with the p_i of the clients in the state."""

    def __init__(self, rounds: Runtime, parts: PersonalParts) -> None:
        self._rounds, self._parts = rounds, parts

    def advance(self, state: State, until: int) -> State:
        """Run rounds until `until` updates are done."""
        if not isinstance(state.memory, Carried):  # probes before round 1
            return self._rounds.advance(state, until)
        self._parts.load(state.memory.parts)
        count = len(state.memory.parts)
        after = self._rounds.advance(state, until)
        stacked = jnp.asarray(self._parts.stack(count), state.w.dtype)
        return after._replace(memory=after.memory._replace(parts=stacked))


class ClientView(NamedTuple):
    """A problem as one client sees it."""

    problem: Problem
    point: Callable[[Any], Array]
    """w -> all parameters of the client's model."""
    common: Callable[[Array], Array]
    """An array whose last axis runs over these parameters -> its entries about w."""


def view_of(problem: Problem, number: int) -> ClientView:
    """The problem of client `number`: as it is, or with its personal part."""
    parts: PersonalParts | None = problem.personal
    if parts is None:
        return ClientView(problem, jnp.asarray, lambda leaf: leaf)
    own = parts.part(number)
    return ClientView(
        parts.whole, lambda w: parts.joined(w, own.at(w)), lambda leaf: leaf[..., parts.shared]
    )
