"""The rules of a secure sum: which parties share masks, and the smallest sum that may be opened.

If there are few parties, each shares masks with all others. If there are many, they are placed on a
circle, and each shares masks with its nearest neighbours on both sides, so that the graph is
k-regular. The order on the circle is a hash of the run, the epoch and the party. Every party
computes it itself, so the server cannot choose colluding parties as somebody's neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from fedssca.privacy.sums.keys import pack_fields

__all__ = ["MaskGraph", "Rules"]

FEW = 32
"""With at most this many parties, each shares masks with all others."""


class Rules(NamedTuple):
    """What all parties and the server know before the first sum."""

    run: bytes
    """Identifies the run: no key or signature of one run is valid in another."""
    asked: int
    """The number of parties that are asked for a sum."""
    neighbours: int = 0
    """The number of parties each party shares masks with; 0 chooses it from the party count."""
    threshold: float = 0.0
    """The fraction of parties that must answer; 0 means two thirds of few, a majority of many."""

    @property
    def least(self) -> int:
        """The number of parties in the smallest sum that may be opened: at least two."""
        return max(2, math.ceil((self.threshold or 2 / 3) * self.asked - 1e-9))

    def degree(self, members: int) -> int:
        """The number of neighbours of each of `members` parties: even, or all others."""
        wanted = self.neighbours or (members if members <= FEW else 6 * math.log2(members))
        return min(members - 1, 2 * math.ceil(wanted / 2))

    def shares(self, members: int) -> int:
        """The number of shares that reconstruct a secret: always more than half of the neighbours.

        Otherwise a server could tell one half of the neighbours that a party answered and the
        other half that it did not, and would learn both of its masks.
        """
        degree = self.degree(members)
        part = self.threshold or (2 / 3 if degree == members - 1 else 0.5)
        return min(degree, max(degree // 2 + 1, math.ceil(part * degree - 1e-9)))

    def graph(self, epoch: int, members: Iterable[int]) -> MaskGraph:
        """The graph of the parties that share masks in an epoch."""
        salt = pack_fields("circle", self.run, epoch)
        order = sorted(members, key=lambda who: sha256(salt + pack_fields(who)).digest())
        return MaskGraph(tuple(order), self.degree(len(order)), self.shares(len(order)))


class MaskGraph(NamedTuple):
    """Which parties share masks: each with its nearest neighbours on a circle."""

    order: tuple[int, ...]
    """The parties, in their order on the circle."""
    degree: int
    """The number of neighbours of each party."""
    shares: int
    """The number of neighbours whose shares reconstruct a party's secret."""

    def neighbours(self, who: int) -> tuple[int, ...]:
        """The neighbours of one party, in ascending order of their numbers."""
        if self.degree == len(self.order) - 1:
            return tuple(sorted(other for other in self.order if other != who))
        at, size = self.order.index(who), len(self.order)
        steps = range(1, self.degree // 2 + 1)
        return tuple(sorted(self.order[(at + s) % size] for k in steps for s in (k, -k)))

    def unprotected(self, alive: Iterable[int]) -> list[int]:
        """The parties with too few neighbours among `alive`.

        Their masks would not protect them, and their secrets could not be reconstructed.
        """
        there = set(alive)
        return [
            who
            for who in self.order
            if sum(other in there for other in self.neighbours(who)) < self.shares
        ]
