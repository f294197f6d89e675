"""Who shares masks with whom, and how many must live: the rules that all parties of a run know.

Few parties share masks with all others. Many sit on a circle, in an order that a hash of the run,
the epoch and the party gives, and share masks with the nearest on both sides: k-regular, and every
party computes it for itself, so the server cannot just name colluders as somebody's neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from fedssca.privacy.sums.keys import context

__all__ = ["Circle", "Rules"]

FEW = 32
"""Up to so many parties share masks with all others."""


class Rules(NamedTuple):
    """What everybody knows before the first sum."""

    run: bytes
    """Names the run, so that nothing of one run is good in another."""
    asked: int
    """How many parties are asked for a sum."""
    neighbours: int = 0
    """With how many others each shares masks; 0: all of few, 6 log2 of many."""
    threshold: float = 0.0
    """The share that must live; 0: two thirds of few, a majority of many."""

    @property
    def least(self) -> int:
        """Parties without which no sum is opened. One alone would be seen."""
        return max(2, math.ceil((self.threshold or 2 / 3) * self.asked - 1e-9))

    def degree(self, members: int) -> int:
        """Neighbours of each of so many members: even, or all others."""
        wanted = self.neighbours or (members if members <= FEW else 6 * math.log2(members))
        return min(members - 1, 2 * math.ceil(wanted / 2))

    def shares(self, members: int) -> int:
        """Neighbours whose shares give a secret back: more than half of them, always.

        A server that told one half that a party lives and the other half that it does not could
        else open both its masks.
        """
        degree = self.degree(members)
        part = self.threshold or (2 / 3 if degree == members - 1 else 0.5)
        return min(degree, max(degree // 2 + 1, math.ceil(part * degree - 1e-9)))

    def circle(self, epoch: int, members: Iterable[int]) -> Circle:
        """The neighbours of all members."""
        salt = context("circle", self.run, epoch)
        order = sorted(members, key=lambda who: sha256(salt + context(who)).digest())
        return Circle(tuple(order), self.degree(len(order)), self.shares(len(order)))


class Circle(NamedTuple):
    """Members in their order, how many neighbours each has, how many shares open a secret."""

    order: tuple[int, ...]
    degree: int
    shares: int

    def neighbours(self, who: int) -> tuple[int, ...]:
        """Of one member, by their numbers."""
        if self.degree == len(self.order) - 1:
            return tuple(sorted(other for other in self.order if other != who))
        at, size = self.order.index(who), len(self.order)
        steps = range(1, self.degree // 2 + 1)
        return tuple(sorted(self.order[(at + s) % size] for k in steps for s in (k, -k)))

    def thin(self, alive: Iterable[int]) -> list[int]:
        """Members with too few living neighbours to open their secrets, or to hide behind."""
        there = set(alive)
        return [
            who
            for who in self.order
            if sum(other in there for other in self.neighbours(who)) < self.shares
        ]
