"""All clients in this process, each with its own messages: a deployment without a network.

It is slower than `rounds.fused`, but it moves real messages between real client objects, so privacy
mechanisms and byte counts work on what would be sent between machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedssca.data.sampling import batch_indices
from fedssca.data.split import Columns, Rows
from fedssca.methods.algorithm import Algorithm, Request, State
from fedssca.problem.problem import Problem
from fedssca.problem.programs import shared
from fedssca.rounds.aggregate import (
    Answerer,
    Arrays,
    Combine,
    Sums,
    blocks,
    in_clear,
    open_collection,
    plain_sum,
)
from fedssca.rounds.broadcast import Publisher
from fedssca.rounds.check import check_fit
from fedssca.rounds.client import SERVER, ColumnClient, OpenClient, for_party
from fedssca.rounds.exchange import Ends, Relay, pairwise
from fedssca.rounds.loop import one_round
from fedssca.rounds.personal import row_client
from fedssca.rounds.perturb import Perturbation, unperturbed
from fedssca.rounds.roles import roles_of
from fedssca.rounds.rounding import from_integers, integer_form
from fedssca.rounds.shapes import round_shapes

__all__ = ["Local"]


class Local:
    """A `Runtime` and its `Parties`: messages are delivered, counted, and added up.

    `sums` adds up the messages of clients with rows; `exchange` is how parties share their h_i.
    """

    def __init__(
        self,
        problem: Problem,
        clients: Rows | Columns,
        algorithm: Algorithm,
        seed: int,
        perturbation: Perturbation = unperturbed,
        *,
        sums: Sums = in_clear,
        exchange: Ends = pairwise,
    ) -> None:
        check_fit(problem, clients, algorithm)
        self._algorithm, self._problem = algorithm, problem
        self.bytes_up: int = 0
        self.bytes_down: int = 0
        self.bytes_peer: int = 0
        self._update = shared(algorithm.update)
        server, size = np.zeros(1, np.int32), np.array([clients.total])
        self._indices = jax.jit(lambda t: batch_indices(seed, t, server, size, algorithm.batch)[0])
        self._clients: list[Any]
        self._halves: list[Answerer] = []
        roles = roles_of(clients)
        self.phases: tuple[str, ...] = roles.phases
        self._relay: Relay = exchange.relay
        self._readers: Sequence[int] = ()
        if isinstance(clients, Rows):
            self.combine: Combine = plain_sum
            self._clients = [
                row_client(
                    i, problem, algorithm, clients.client(i), clients.total, seed, perturbation
                )
                for i in range(clients.count)
            ]
            self._halves = [sums.client(i) for i in range(clients.count)]
            self._publisher = Publisher(problem, algorithm)
            self._adder, self._message = sums.server(), round_shapes(problem, clients, algorithm)[1]
        elif clients.collection == "open":
            assert problem.vertical is not None
            self.combine = open_collection(problem.vertical, algorithm)
            self._clients = [
                OpenClient(i, problem, clients.client(i)) for i in range(clients.count)
            ]
        else:
            assert problem.vertical is not None
            self.combine, self._readers = blocks(problem.vertical), roles.readers
            self._clients = [
                ColumnClient(
                    i,
                    problem,
                    algorithm,
                    clients.client(i),
                    roles,
                    exchange.party(i, clients.count),
                    perturbation,
                )
                for i in range(clients.count)
            ]

    def advance(self, state: State, until: int) -> State:
        """Rounds one by one, as in a deployment."""
        algorithm = self._algorithm._replace(update=self._update)
        while int(state.round) < until:
            state = one_round(algorithm, self, state)
        return state

    def call(self, phase: str, request: Request) -> Sequence[Any]:
        """One phase at all clients; what the server gets."""
        return self._rows(request) if self._halves else self._columns(phase, request)

    def _rows(self, request: Request) -> Sequence[Any]:
        """Clients with rows: the sum over those who answer, in as many exchanges as it takes."""
        numbers = list(range(len(self._clients)))
        answers = dict.fromkeys(numbers, True)
        if request.turnout:
            asked, here = request.turnout.asked, request.turnout.answers
            answers = dict(zip(np.asarray(asked).tolist(), np.asarray(here).tolist(), strict=True))
        published = self._publisher.address(request._replace(turnout=()), list(answers))

        def ask(phase: str, sent: Mapping[int, Arrays]) -> dict[int, Any]:
            """A client that is silent in this round stops answering when messages are due."""
            found = {}
            for number, arrays in sent.items():
                asked = published[number] if phase == "reply" else ()
                self.bytes_down += _size((arrays, asked))
                if answers.get(number, True) or phase not in ("reply", "unmask"):
                    found[number] = self._answer(number, phase, arrays, published[number])
                    self.bytes_up += _size(found[number])
            return found

        sent = integer_form(self._message, request.grid, self._algorithm.bits)
        gathered = self._adder.gather(ask, list(answers), sent)
        self._publisher.answered(gathered.who)
        return [from_integers(gathered.total, request.grid, self._message)]

    def _answer(self, number: int, phase: str, arrays: Arrays, request: Request) -> Any:
        """What leaves a client: only what its half of the sum returns."""
        client = self._clients[number]
        return self._halves[number].handle(
            phase, arrays, lambda: client.handle("reply", request)[SERVER]
        )

    def _columns(self, phase: str, request: Request) -> Sequence[Any]:
        """Parties with columns: deliver what goes to peers, return what goes to the server."""
        to_server: dict[int, Any] = {}
        outgoing: list[tuple[int, int, Any]] = []
        for number, client in enumerate(self._clients):
            asked = self._address(number, request)
            if phase == self.phases[0]:
                self.bytes_down += _size(asked)
            for recipient, payload in client.handle(phase, asked).items():
                if recipient == SERVER:
                    self.bytes_up += _size(payload)
                    to_server[number] = payload
                else:
                    self.bytes_peer += _size(payload)
                    outgoing.append((client.number, recipient, payload))
        if phase == "share":
            for recipient, payload in self._relay(to_server, self._readers).items():
                self.bytes_down += _size(payload)
                outgoing.append((SERVER, recipient, payload))
        for sender, recipient, payload in outgoing:
            self._clients[recipient].receive(sender, payload)
        return list(to_server.values())

    def _address(self, number: int, request: Request) -> Any:
        """What the server sends to a party: its own block of w and the batch."""
        split = self._problem.vertical
        assert split is not None
        return for_party(split, number, request, self._indices(request.round))


def _size(payload: Any) -> int:
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(payload))
