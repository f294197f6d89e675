"""How the h_i of a batch reach the parties that need them.

The phase "share" of parties that hold columns goes through an `Exchange`: `Pairwise` sends h_i to
every reader; `privacy.masked` sends noise to the server and the sum to the readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fedssca.problem.problem import Array

__all__ = ["SERVER", "Exchange", "Outgoing", "Pairwise", "Relay", "nothing"]

SERVER = -1
Outgoing = dict[int, Any]
"""Recipient (a client's number, or SERVER) -> payload."""

Relay = Callable[[Mapping[int, Any], Sequence[int]], Outgoing]
"""At the server, after "share": what each party sent it, the readers -> what each reader gets."""


def nothing(sent: Mapping[int, Any], readers: Sequence[int]) -> Outgoing:
    """Parties talk to each other: the server has nothing to pass on."""
    del sent, readers
    return {}


class Exchange(Protocol):
    """A party's end of it; one object for all rounds."""

    def send(self, h: Array, readers: Sequence[int]) -> Outgoing:
        """Begin a round: own h_i goes out, for `readers` to use."""

    def receive(self, sender: int, payload: Any) -> None:
        """Take what came from a peer or, by way of `Relay`, from the server."""

    def collect(self) -> list[Array]:
        """The round's h_i, one a party; where the head sees only their sum, any with that sum."""


class Ends(NamedTuple):
    """Both ends of a way to exchange."""

    party: Callable[[int, int], Exchange]
    """(own number, how many parties) -> that party's end."""
    relay: Relay


class Pairwise:
    """h_i itself, from party to party; between machines each letter is encrypted for its reader."""

    def __init__(self, number: int, parties: int) -> None:
        self._number, self._parties = number, parties
        self._inbox: dict[int, Array] = {}

    def send(self, h: Array, readers: Sequence[int]) -> Outgoing:
        """To every reader but myself."""
        self._inbox = {self._number: h}
        return {reader: h for reader in readers if reader != self._number}

    def receive(self, sender: int, payload: Any) -> None:
        """Keep a peer's h."""
        self._inbox[sender] = payload

    def collect(self) -> list[Array]:
        """All of them, or an error that names who is missing."""
        missing = [i for i in range(self._parties) if i not in self._inbox]
        if missing:
            raise RuntimeError(
                f"party {self._number} has no h from parties {missing} in this round"
            )
        return [self._inbox[i] for i in range(self._parties)]


pairwise = Ends(Pairwise, nothing)
