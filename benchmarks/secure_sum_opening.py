"""What a server, together with colluding parties, can compute from the messages of a secure sum.

`secure_sum_faults.py` uses it to judge a schedule of lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedssca.privacy.sums.agreement import Locked, pad, unlock
from fedssca.privacy.sums.graph import MaskGraph
from fedssca.privacy.sums.keys import Forged, MaskStream, unpack_fields
from fedssca.privacy.sums.mask_seeds import opened_seeds
from fedssca.privacy.sums.masked_client import MaskedSumClient, commitment
from fedssca.privacy.sums.shamir import SHARE, recover
from fedssca.rounds.aggregate import Arrays

RUN = bytes(range(16))


class Masked(NamedTuple):
    """What one party did in one sum."""

    said: Arrays
    """Its masked message, its boxes and its next sealed seeds."""
    graph: MaskGraph
    members: tuple[int, ...]
    held: dict[int, bytes]
    """The neighbours with which it shares masks, and its shares of their secrets."""
    seeds: dict[int, bytes]
    """The seeds of its masks; the attacker uses those of colluders only."""
    sealed: bytes
    """Its seeds as it sealed them for the server before this sum."""
    number: int


class Told(NamedTuple):
    """What one party was told when a sum was to be opened, and what it answered."""

    statement: bytes
    alive: set[int]
    said: Arrays


def box_for(masked: Mapping[int, Masked], sender: int, receiver: int) -> bytes:
    """The box in the sender's reply for this receiver; empty if there is none."""
    reply = masked[sender]
    boxes = unpack_fields(reply.said["boxes"].tobytes(), len(reply.held))
    return dict(zip(reply.held, boxes, strict=True)).get(receiver, b"")


class Opening:
    """Everything that can be computed from one sum's messages."""

    def __init__(
        self,
        clients: Sequence[MaskedSumClient],
        colluders: set[int],
        masked: Mapping[int, Masked],
        told: Mapping[int, list[Told]],
    ) -> None:
        """The secrets of `clients` are used for the colluders only."""
        self._clients, self._bad, self._masked, self._told = clients, colluders, masked, told
        self._masks = MaskStream()
        self._shares: dict[tuple[int, str], dict[int, bytes]] = {}
        for who, answers in told.items():
            for answer in answers:
                self._add_revealed(who, answer)
        for holder in colluders & set(masked):
            self._add_held(holder)

    def _add_revealed(self, who: int, answer: Told) -> None:
        """Unlock what a party revealed, if enough witnesses were told the same."""
        own = self._masked.get(who)
        if own is None:
            return
        given = {}
        for place, witness in enumerate(own.graph.witnesses_of(who, answer.alive)):
            if witness in self._bad:
                key = self._clients[witness]._vouching.get(who)
                if key is not None:
                    given[place] = pad(key, answer.statement, witness, who)
            for other in self._told.get(witness, []):
                others = [i for i in sorted(other.alive) if i != witness]
                if other.statement == answer.statement:
                    at = SHARE * others.index(who)
                    given[place] = other.said["pads"].tobytes()[at : at + SHARE]
        locked = Locked(answer.said["box"].tobytes(), answer.said["locks"].tobytes())
        data = unlock(locked, given, answer.statement, own.graph.needed_for(who)).secret
        if data is None:
            return
        near = [i for i in own.held if i in answer.alive]
        owners = [(i, "seed") for i in near]
        owners += [(i, "key") for i in own.held if i not in answer.alive]
        for k, secret in enumerate(owners):
            self._add(secret, who, data[SHARE * k : SHARE * (k + 1)])

    def _add_held(self, holder: int) -> None:
        for owner, share in self._masked[holder].held.items():
            self._add((owner, "key"), holder, share)
            if owner in self._masked:
                number, box = self._masked[holder].number, box_for(self._masked, owner, holder)
                try:
                    (data,) = self._clients[holder]._opened(number, [(owner, box)], 2 * SHARE)
                except Forged:
                    continue
                self._add((owner, "seed"), holder, data[:SHARE])

    def _add(self, secret: tuple[int, str], holder: int, share: bytes) -> None:
        owner = self._masked.get(secret[0])
        if owner is not None and holder in owner.graph.neighbours(secret[0]):
            place = owner.graph.neighbours(secret[0]).index(holder) + 1
            self._shares.setdefault(secret, {})[place] = share

    def _secret(self, who: int, kind: str) -> bytes | None:
        own = self._masked[who]

        def fits(secret: bytes) -> bool:
            if kind == "key":
                return self._opened_seeds(who, secret) is not None
            return commitment(own.number, secret) == own.said["commit"].tobytes()

        return recover(self._shares.get((who, kind), {}), own.graph.shares, fits).secret

    def _opened_seeds(self, who: int, secret: bytes) -> dict[int, bytes] | None:
        own = self._masked[who]
        near = own.graph.neighbours(who)
        try:
            return dict(zip(near, opened_seeds(secret, own.sealed, len(near)), strict=True))
        except Forged:
            return None

    def groups(self) -> list[tuple[set[int], np.ndarray]]:
        """The groups of honest parties whose sum can be computed, and the sums."""
        honest = [who for who in self._masked if who not in self._bad]
        seeds = {who: self._secret(who, "seed") for who in honest}
        keys = {who: self._secret(who, "key") for who in honest}
        opened = {who: self._opened_seeds(who, key) for who, key in keys.items() if key is not None}
        known = {who: found for who, found in opened.items() if found is not None}
        known |= {who: self._masked[who].seeds for who in self._bad & set(self._masked)}
        bare = {}
        for who in honest:
            seed = seeds[who]
            if seed is not None:
                bare[who] = self._masked[who].said["masked"].copy()
                self._masks.add(bare[who], seed, -1)
        hidden: dict[int, set[int]] = {}
        for who in bare:
            hidden[who] = set()
            for peer in self._masked[who].held:
                mask = known.get(who, {}).get(peer) or known.get(peer, {}).get(who)
                if mask is None:
                    hidden[who].add(peer)
                    continue
                self._masks.add(bare[who], mask, -1 if who < peer else 1)
        return list(self._components(bare, hidden))

    def _components(
        self, bare: Mapping[int, np.ndarray], hidden: Mapping[int, set[int]]
    ) -> Iterator[tuple[set[int], np.ndarray]]:
        left = set(bare)
        while left:
            group, border = set(), {left.pop()}
            while border:
                who = border.pop()
                group.add(who)
                border |= {i for i in hidden.get(who, ()) if i not in group}
            left -= group
            # A mask to a party without an opened seed, or which that party did not use, remains.
            if all(i in bare and all(i in hidden.get(j, ()) for j in hidden[i]) for i in group):
                yield group, np.sum([bare[i] for i in group], axis=0, dtype=np.uint64)
