"""THE round loop. It knows no runtime, no privacy mechanism, no data source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from fedssca.methods.algorithm import Algorithm, Request, State
from fedssca.rounds.aggregate import Combine

__all__ = ["Parties", "Runtime", "one_round", "run"]


class Parties(Protocol):
    """The clients as the server sees them: processes, machines, or one traced program."""

    phases: tuple[str, ...]

    @property
    def combine(self) -> Combine:
        """What the server makes of what the clients sent in the last phase."""

    def call(self, phase: str, request: Request) -> Sequence[Any]:
        """Run one phase at all clients and bring what they sent to the server."""


class Runtime(Protocol):
    """Where rounds happen."""

    def advance(self, state: State, until: int) -> State:
        """`one_round` again and again, until `until` updates are done."""


def one_round(algorithm: Algorithm, parties: Parties, state: State) -> State:
    """One communication round: publish w(t), collect the statistics, update."""
    request = algorithm.request(state)
    for phase in parties.phases:
        payloads = parties.call(phase, request)
    return algorithm.update(state, parties.combine(request, payloads))


def run(
    runtime: Runtime,
    state: State,
    stops: Iterable[int],
    observe: Callable[[State], State | bool | None],
) -> State:
    """Rounds up to each of `stops` in turn; `observe` sees the state there.

    It may end the run (True), or give another state to go on from.
    """
    for stop in stops:
        state = runtime.advance(state, stop)
        verdict = observe(state)
        if isinstance(verdict, State):
            state = verdict
        elif verdict:
            break
    return state
