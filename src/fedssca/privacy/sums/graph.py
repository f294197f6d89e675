"""The rules of a secure sum: who shares masks with whom, who are witnesses, how many must agree.

If there are few parties, each shares masks with all others. If there are many, they are placed on a
circle, and each shares masks with its nearest neighbours on both sides, so that the graph is
k-regular. The order on the circle is a hash of the run and the party, which every party computes
itself; it stays the same when some of them vanish, so that most neighbours know each other. The
first parties on the circle, all of them if there are few, are the witnesses: a sum opens only if a
quorum of them was told the same about it (`agreement`).

Why a lying server together with at most c other parties learns one sum and nothing else, where

    m witnesses, quorum q, k neighbours, t shares, at least `least` parties in a sum:

1. c < 2q - m: two different statements about one sum cannot both have q witnesses. The colluders
   are witnesses of both; each honest witness is told, and answers, one. So all honest parties whose
   shares open were told the same alive parties A.
2. c < t: the honest parties then reveal shares of b_v for v in A, and of r_v, which opens the seeds
   of v's masks, for v not in A, and never both for one party. The colluders' shares alone
   reconstruct nothing.
3. The masks between honest parties of A stay unknown, and cancel only in the sum over all parties
   that they connect. If all parties share masks, these are all honest parties of A. On a circle,
   two gaps of k/2 places without an honest party of A would be needed to cut it in two. Each party
   checks that every party of A has t neighbours in A, so at most k - t places of a gap are dead,
   and the two gaps together have at least 2 (k/2 - (k - t)) = 2t - k colluders: c < 2t - k.
4. c <= least - 2: the sum has two honest parties at least.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from fedssca.privacy.sums.keys import pack_fields

__all__ = ["MaskGraph", "Rules"]

FEW = 32
"""With at most this many parties, each shares masks with all others, and all are witnesses."""
WITNESSES = 23
"""The number of witnesses among more parties."""
TWO_THIRDS = 2 / 3
"""The least part of the neighbours, and of the witnesses, that must take part."""


def _part_of(part: float, count: int) -> int:
    return math.ceil(part * count - 1e-9)


class Rules(NamedTuple):
    """What all parties and the server know before the first sum."""

    run: bytes
    """Identifies the run: no key or signature of one run is valid in another."""
    asked: int
    """The number of parties that are asked for a sum."""
    neighbours: int = 0
    """The number of parties each party shares masks with; 0 chooses it from the party count."""
    threshold: float = 0.0
    """The fraction of parties that must answer; 0 means two thirds."""

    @property
    def least(self) -> int:
        """The number of parties in the smallest sum that may be opened: at least two."""
        return max(2, _part_of(self.threshold or TWO_THIRDS, self.asked))

    def degree(self, members: int) -> int:
        """The number of neighbours k of each of `members` parties: even, or all others."""
        wanted = self.neighbours or (members if members <= FEW else 6 * math.log2(members))
        return min(members - 1, 2 * math.ceil(wanted / 2))

    def shares(self, members: int) -> int:
        """The number t of shares that reconstruct a secret: at least two thirds of the k."""
        degree = self.degree(members)
        others = self._least_of(degree + 1, degree == members - 1) - 1
        return min(degree, max(_part_of(TWO_THIRDS, degree), others))

    def witnesses(self, members: int) -> int:
        """The number m of witnesses among `members` parties."""
        return members if members <= FEW else WITNESSES

    def quorum(self, members: int) -> int:
        """The number q of witnesses that must have been told the same: at least two thirds."""
        count = self.witnesses(members)
        return min(count, max(_part_of(TWO_THIRDS, count), self._least_of(count, count == members)))

    def _least_of(self, count: int, everyone: bool) -> int:
        """The smallest sum if `count` is everyone, otherwise the same fraction of `count`."""
        return self.least if everyone else _part_of(self.threshold or TWO_THIRDS, count)

    def colluders(self) -> int:
        """The largest c with which nothing but sums of two or more honest parties can be opened.

        It holds wherever the colluders are on the circle, and whichever parties the server lets
        take part.
        """
        found = self.least - 2
        for members in range(self.least, self.asked + 1):
            degree, shares = self.degree(members), self.shares(members)
            found = min(found, 2 * self.quorum(members) - self.witnesses(members) - 1, shares - 1)
            if degree < members - 1:
                found = min(found, 2 * shares - degree - 1)
        return max(0, found)

    def graph(self, members: Iterable[int]) -> MaskGraph:
        """The graph of the parties that share masks in an epoch."""
        order = _circle(self.run, tuple(sorted(members)))
        count = len(order)
        witnesses = tuple(sorted(order[: self.witnesses(count)]))
        return MaskGraph(
            order, self.degree(count), self.shares(count), witnesses, self.quorum(count)
        )


@lru_cache(maxsize=8)
def _circle(run: bytes, members: tuple[int, ...]) -> tuple[int, ...]:
    """The order of the parties; many parties in one process ask for the same one."""
    salt = pack_fields("circle", run)
    return tuple(sorted(members, key=lambda who: sha256(salt + pack_fields(who)).digest()))


class MaskGraph(NamedTuple):
    """Which parties share masks: each with its nearest neighbours on a circle."""

    order: tuple[int, ...]
    """The parties, in their order on the circle."""
    degree: int
    """The number of neighbours of each party."""
    shares: int
    """The number of neighbours whose shares reconstruct a party's secret."""
    witnesses: tuple[int, ...]
    """The parties that vouch for what they were told about a sum, in ascending order."""
    quorum: int
    """The number of witnesses that must have been told the same."""

    def neighbours(self, who: int) -> tuple[int, ...]:
        """The neighbours of one party, in ascending order of their numbers."""
        if self.degree == len(self.order) - 1:
            return tuple(sorted(other for other in self.order if other != who))
        at, size = self.order.index(who), len(self.order)
        steps = range(1, self.degree // 2 + 1)
        return tuple(sorted(self.order[(at + s) % size] for k in steps for s in (k, -k)))

    def contacts(self, who: int) -> tuple[int, ...]:
        """The parties with which one party shares a key: neighbours, and witness with everyone."""
        if who in self.witnesses:
            return tuple(sorted(other for other in self.order if other != who))
        return tuple(sorted({*self.neighbours(who), *self.witnesses}))

    def witnesses_of(self, who: int, alive: Collection[int]) -> tuple[int, ...]:
        """The live witnesses that open what one party reveals: all but itself."""
        return tuple(other for other in self.witnesses if other in alive and other != who)

    def needed_for(self, who: int) -> int:
        """The number of other witnesses that must agree with one party."""
        return self.quorum - (who in self.witnesses)

    def unprotected(self, alive: Iterable[int]) -> list[int]:
        """The parties with too few neighbours among `alive`; all, if witnesses are too few.

        Their masks would not protect them, and their secrets could not be reconstructed.
        """
        there = set(alive)
        if there.issuperset(self.order):
            return []
        if sum(who in there for who in self.witnesses) < self.quorum:
            return list(self.order)
        if self.degree == len(self.order) - 1:
            return [who for who in self.order if len(there - {who}) < self.shares]
        half, here = self.degree // 2, np.array([who in there for who in self.order])
        around = np.concatenate([here[-half:], here, here[:half]]).cumsum()
        sums = around[2 * half :] - np.concatenate([[0], around[: -2 * half - 1]])
        few = sums - here < self.shares
        return [who for who, alone in zip(self.order, few.tolist(), strict=True) if alone]
