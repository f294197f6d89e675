"""How the h_i of a batch reach the parties that need them.

The phase "share" of parties that hold columns goes through an `Exchange`: `Pairwise` sends h_i to
every reader; the hidden exchange of `privacy.sums` sends masked h_i to the server, and only their
sum reaches the readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fedssca.problem.problem import Array
from fedssca.rounds.codec import InvalidMessage

__all__ = ["SERVER", "Exchange", "Outgoing", "Pairwise", "Relay", "nothing"]

SERVER = -1
Outgoing = dict[int, Any]
"""Recipient (a client's number, or SERVER) -> payload."""

Relay = Callable[[Mapping[int, Any], Sequence[int]], Outgoing]
"""At the server, after "share": what each party sent it, the readers -> what each reader gets."""


def nothing(sent: Mapping[int, Any], readers: Sequence[int]) -> Outgoing:
    """The relay of parties that send to each other directly: the server forwards nothing."""
    del sent, readers
    return {}


class Exchange(Protocol):
    """One party's end of the exchange; one object serves all rounds."""

    def send(self, h: Array, readers: Sequence[int]) -> Outgoing:
        """Begin a round: what this party sends so that `readers` can use its h_i."""

    def receive(self, sender: int, payload: Any) -> None:
        """Store what came from a peer or, through a `Relay`, from the server."""

    def collect(self) -> list[Array]:
        """The round's h_i, one per party; where only their sum is known, arrays with that sum."""


class Ends(NamedTuple):
    """Both ends of a way to exchange the h_i."""

    party: Callable[[int, int], Exchange]
    """(own number, how many parties) -> that party's end."""
    relay: Relay


class Pairwise:
    """Sends h_i itself to every reader; between machines it is encrypted for that reader alone."""

    def __init__(self, number: int, parties: int) -> None:
        self._number, self._parties = number, parties
        self._inbox: dict[int, Array] = {}

    def send(self, h: Array, readers: Sequence[int]) -> Outgoing:
        """Send h to every other reader."""
        self._inbox = {self._number: h}
        return {reader: h for reader in readers if reader != self._number}

    def receive(self, sender: int, payload: Any) -> None:
        """Store a peer's h."""
        self._inbox[sender] = payload

    def collect(self) -> list[Array]:
        """The h_i of all parties, or an error that names the missing parties."""
        missing = [i for i in range(self._parties) if i not in self._inbox]
        if missing:
            raise InvalidMessage(
                f"party {self._number} has no h from parties {missing} in this round"
            )
        return [self._inbox[i] for i in range(self._parties)]


pairwise = Ends(Pairwise, nothing)
