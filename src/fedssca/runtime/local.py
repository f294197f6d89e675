"""All clients in this process, each behind its own messages: a deployment without the wire.

The slow twin of `runtime.fused`: it moves real payloads between real client objects, so privacy
mechanisms and byte counts see what they would see between machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from fedssca.aggregate import blocks, open_collection, plain_sum
from fedssca.algorithm import Algorithm, Request, State
from fedssca.client import SERVER, ColumnClient, OpenClient, RowClient, for_party
from fedssca.data.split import Columns, Rows
from fedssca.exchange import Ends, pairwise
from fedssca.loop import one_round
from fedssca.privacy.noise import simulated
from fedssca.problem import Problem
from fedssca.runtime.check import check_fit
from fedssca.sampling import batch_indices

__all__ = ["Local"]


class Local:
    """A `Runtime` and the `Parties` of it: messages are handed over, counted, and added up."""

    def __init__(
        self,
        problem: Problem,
        clients: Rows | Columns,
        algorithm: Algorithm,
        seed: int,
        *,
        exchange: Ends = pairwise,
    ) -> None:
        check_fit(problem, clients, algorithm)
        self._algorithm, self._problem = algorithm, problem
        self.bytes_up = self.bytes_down = self.bytes_peer = 0
        self._update = jax.jit(algorithm.update)
        server, size = np.zeros(1, np.int32), np.array([clients.total])
        self._indices = jax.jit(lambda t: batch_indices(seed, t, server, size, algorithm.batch)[0])
        self._clients: list[Any]
        self._relay, self._readers = exchange.relay, []
        veil = simulated(seed)
        if isinstance(clients, Rows):
            self.aggregator = plain_sum
            self._clients = [
                RowClient(i, problem, algorithm, clients.client(i), clients.total, seed, veil)
                for i in range(clients.count)
            ]
        elif clients.collection == "open":
            assert problem.vertical is not None
            self.aggregator = open_collection(problem.vertical, algorithm)
            self._clients = [
                OpenClient(i, problem, clients.client(i)) for i in range(clients.count)
            ]
        else:
            assert problem.vertical is not None
            self.aggregator, self._readers = blocks(problem.vertical), clients.readers
            self._clients = [
                ColumnClient(
                    i,
                    problem,
                    algorithm,
                    clients.client(i),
                    clients.label_holder,
                    exchange.party(i, clients.count),
                    veil,
                )
                for i in range(clients.count)
            ]
        self.phases = self._clients[0].phases

    def advance(self, state: State, until: int) -> State:
        """Rounds one by one, as in a deployment."""
        algorithm = self._algorithm._replace(update=self._update)
        while int(state.round) < until:
            state = one_round(algorithm, self, state)
        return state

    def call(self, phase: str, request: Request) -> Sequence[Any]:
        """Ask every client, deliver what goes to peers, return what goes to the server."""
        to_server: dict[int, Any] = {}
        letters: list[tuple[int, int, Any]] = []
        for number, answers in self._turnout(request):
            client, asked = self._clients[number], self._address(number, request)
            if phase == self.phases[0]:
                self.bytes_down += _size(asked)
            for recipient, payload in client.handle(phase, asked).items() if answers else ():
                if recipient == SERVER:
                    self.bytes_up += _size(payload)
                    to_server[number] = payload
                else:
                    self.bytes_peer += _size(payload)
                    letters.append((client.number, recipient, payload))
        if phase == "share":
            for recipient, payload in self._relay(to_server, self._readers).items():
                self.bytes_down += _size(payload)
                letters.append((SERVER, recipient, payload))
        for sender, recipient, payload in letters:
            self._clients[recipient].receive(sender, payload)
        if request.turnout and not to_server:
            return [self._clients[0].silence(request)]
        return list(to_server.values())

    def _turnout(self, request: Request) -> Iterable[tuple[int, bool]]:
        """Who is asked, and whether he answers."""
        if not request.turnout:
            return ((number, True) for number in range(len(self._clients)))
        return zip(*(np.asarray(part).tolist() for part in request.turnout), strict=True)

    def _address(self, number: int, request: Request) -> Any:
        """What the server sends to one client: all of w, or a party's own block and the batch."""
        split = self._problem.vertical
        if isinstance(self._clients[number], RowClient) or split is None:
            return request._replace(turnout=())
        return for_party(split, number, request, self._indices(request.round))


def _size(payload: Any) -> int:
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(payload))
