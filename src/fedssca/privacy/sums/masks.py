"""The secure sum: the server learns what the parties' messages add up to, and nothing else of them.

Double masking after Bonawitz et al. (2017) on the sparse graph of Bell et al. (2020). Party i sends

    y_i = x_i + PRG(b_i) + sum_{j > i} PRG(s_ij) - sum_{j < i} PRG(s_ij)      modulo 2^64

where j runs over its neighbours, s_ij comes from an X25519 agreement between i and j for this sum
alone, and b_i is fresh. The s_ij cancel among those who answer. Neighbours hold shares of b_i, that
they give the server if i answered, and of i's key for this sum, which they give it if i did not;
never both. So a party may vanish at any moment.

    keys      -> signed public keys                                  \\  once, and again after
    shares    the neighbours' keys -> sealed shares of the own key   /   somebody vanished
    reply     -> y_i, sealed shares of b_i and of the next sum's key
    unmask    who answered, who did not -> own b_i, shares

The key of the next sum travels with this one, so a sum takes two exchanges, and a key that was
opened is good for one sum only: what its owner sent before stays hidden. This is the parties'
half; `secure_sum_server` is the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from fedssca.errors import UserError
from fedssca.privacy.sums.fixed_point import Layout, to_fixed
from fedssca.privacy.sums.graph import Circle, Rules
from fedssca.privacy.sums.keys import (
    KEY,
    NONCE,
    Forged,
    Identity,
    KeyPair,
    Masks,
    context,
    open_box,
    parts_of,
    seal,
)
from fedssca.privacy.sums.shamir import SHARE, split
from fedssca.rounds.aggregate import Arrays

__all__ = ["Masker", "Refused", "as_array", "commitment", "cost"]

BOX = 4 + NONCE + 16
"""Bytes around what is sealed: its length, nonce and tag."""
ORDER = 16
"""Bytes that say which epoch and which sum."""
NEEDED = {
    "keys": {"epoch"},
    "shares": {"epoch", "members", "keys"},
    "reply": {"epoch", "number"},
    "unmask": {"epoch", "number", "alive", "dead", "boxes"},
}
"""What comes with each phase; with the first reply of an epoch also its members and boxes."""


class Refused(UserError):
    """A party or the server does not go on with a sum, for the reason that it says."""


class Peer(NamedTuple):
    """What a party knows of a neighbour for the coming sum."""

    public: bytes
    """The neighbour's mask key,"""
    share: bytes
    """and a share of its secret half."""


class Pending(NamedTuple):
    """A sum that was masked and not yet opened."""

    number: int
    seed: bytes
    """b_i."""
    peers: dict[int, Peer]
    after: KeyPair
    """The own mask key of the next sum."""


class Masker:
    """A party's half: masks what it answers, and helps to open the sum once."""

    def __init__(self, number: int, identity: Identity, rules: Rules) -> None:
        self._me, self._identity, self._rules = number, identity, rules
        self._masks = Masks()
        self._epoch = self._number = 0
        self._forget()

    def _forget(self) -> None:
        self._channel, self._own = KeyPair(), KeyPair()
        self._circle: Circle | None = None
        self._near: tuple[int, ...] = ()
        self._ways: dict[int, bytes] = {}
        self._known: dict[int, bytes] = {}
        self._members: tuple[int, ...] = ()
        self._peers: dict[int, Peer] | None = None
        self._pending: Pending | None = None

    def handle(self, phase: str, asked: Arrays, answer: Callable[[], Any]) -> Arrays:
        """Answer the server; `answer` computes the message that is to be hidden."""
        steps: dict[str, Callable[[Arrays], Arrays]] = {
            "keys": self._on_keys,
            "shares": self._on_shares,
            "reply": lambda asked: self._on_reply(asked, answer),
            "unmask": self._on_unmask,
        }
        if phase not in steps:
            raise Refused(f"a secure sum has no phase {phase!r}")
        self._insist(asked.keys() >= NEEDED[phase], f"{phase} came without all that it needs")
        try:
            return steps[phase](asked)
        except Forged as forged:
            raise Refused(f"party {self._me}, {phase}: {forged}") from None

    def _on_keys(self, asked: Arrays) -> Arrays:
        epoch = int(asked["epoch"])
        self._insist(epoch > self._epoch, f"epoch {epoch} is not new")
        self._forget()
        self._epoch = epoch
        said = self._signed(self._me, self._channel.public, self._own.public)
        return _bytes(
            channel=self._channel.public, mask=self._own.public, sign=self._identity.sign(said)
        )

    def _signed(self, who: int, channel: bytes, mask: bytes) -> bytes:
        return context("keys", self._rules.run, self._epoch, who, channel, mask)

    def _on_shares(self, asked: Arrays) -> Arrays:
        self._check_epoch(asked)
        self._insist(self._circle is None, "shares of this epoch were given already")
        members = [int(who) for who in asked["members"]]
        self._check_members(members)
        circle = self._rules.circle(self._epoch, members)
        near = circle.neighbours(self._me)
        keys = parts_of(asked["keys"].tobytes(), 3 * len(near))
        for j, who in enumerate(near):
            channel, mask, sign = keys[3 * j : 3 * j + 3]
            self._identity.verify(who, self._signed(who, channel, mask), sign)
            pair = sorted((self._me, who))
            self._ways[who] = self._channel.agree(channel, self._about("way", *pair))
            self._known[who] = mask
        self._circle, self._near = circle, near
        shares = split(self._own.secret, len(near), circle.shares)
        return {"boxes": self._boxes(0, dict(zip(near, shares, strict=True)))}

    def _on_reply(self, asked: Arrays, answer: Callable[[], Any]) -> Arrays:
        self._check_epoch(asked)
        circle, number = self._circle, int(asked["number"])
        self._insist(circle is not None, "reply came before shares")
        assert circle is not None
        self._insist(number > self._number, f"sum {number} is not new")
        if self._peers is None:
            self._insist(not self._members, "this epoch is over: new keys are needed")
            self._begin(asked)
        peers = self._peers
        assert peers is not None
        message = answer()
        vector = to_fixed(Layout.of(message).pack(message), len(self._members))
        for who, peer in peers.items():
            pair = sorted((self._me, who))
            seed = self._own.agree(peer.public, self._about("mask", number, *pair))
            self._masks.add(vector, seed, 1 if self._me < who else -1)
        seed, after = os.urandom(KEY), KeyPair()
        self._masks.add(vector, seed)
        halves = (split(secret, len(self._near), circle.shares) for secret in (seed, after.secret))
        shares = dict(zip(self._near, zip(*halves, strict=True), strict=True))
        boxes = {who: b"".join(shares[who]) + after.public for who in peers}
        self._number, self._peers = number, None
        self._pending = Pending(number, seed, peers, after)
        return _bytes(mask=after.public, commit=commitment(number, seed)) | {
            "masked": vector,
            "boxes": self._boxes(number, boxes),
        }

    def _begin(self, asked: Arrays) -> None:
        """The first sum of an epoch: who is in it, and what the neighbours sealed for this one."""
        assert self._circle is not None
        self._insist(asked.keys() >= {"members", "boxes"}, "an epoch began without its members")
        members = [int(who) for who in asked["members"]]
        self._check_members(members)
        self._insist(set(members) <= set(self._circle.order), "there are members without keys")
        near = [who for who in self._near if who in members]
        self._insist(len(near) >= self._circle.shares, "too few neighbours are left to hide behind")
        boxes = parts_of(asked["boxes"].tobytes(), len(near))
        self._peers = {
            who: Peer(self._known[who], self._opened(0, who, box, SHARE))
            for who, box in zip(near, boxes, strict=True)
        }
        self._members = tuple(members)

    def _on_unmask(self, asked: Arrays) -> Arrays:
        self._check_epoch(asked)
        pending, number = self._pending, int(asked["number"])
        alive, dead = ([int(who) for who in asked[name]] for name in ("alive", "dead"))
        ready = pending is not None and pending.number == number
        self._insist(ready, f"sum {number} was not masked here last, or is open already")
        assert pending is not None
        assert self._circle is not None
        self._insist(not set(alive) & set(dead), "a party is said to be both alive and dead")
        everyone = sorted(alive + dead) == sorted(self._members)
        self._insist(everyone, "those alive and dead are not the members of this sum")
        self._insist(self._me in alive, "it is said to be dead itself")
        self._check_enough(alive)
        near = [who for who in pending.peers if who in alive]
        gone = [who for who in pending.peers if who in dead]
        self._insist(len(near) >= self._circle.shares, "too few neighbours are left to hide behind")
        boxes = parts_of(asked["boxes"].tobytes(), len(near))
        inside = [
            self._opened(number, who, box, 2 * SHARE + KEY)
            for who, box in zip(near, boxes, strict=True)
        ]
        self._pending = None  # from here on this sum cannot be opened again
        if not gone and len(alive) == len(self._members):
            self._own = pending.after
            self._peers = {
                who: Peer(data[2 * SHARE :], data[SHARE : 2 * SHARE])
                for who, data in zip(near, inside, strict=True)
            }
        return _bytes(
            seed=pending.seed,
            alive=b"".join(data[:SHARE] for data in inside),
            dead=b"".join(pending.peers[who].share for who in gone),
        )

    def _about(self, what: str, *rest: int) -> bytes:
        return context(what, self._rules.run, self._epoch, *rest)

    def _boxes(self, number: int, contents: Mapping[int, bytes]) -> np.ndarray:
        """Sealed, each for its neighbour."""
        sealed = (
            seal(self._ways[who], data, self._about("box", number, self._me, who))
            for who, data in contents.items()
        )
        return as_array(context(*sealed))

    def _opened(self, number: int, sender: int, box: bytes, size: int) -> bytes:
        about = self._about("box", number, sender, self._me)
        data = open_box(self._ways[sender], box, about)
        if len(data) != size:
            raise Forged(f"party {sender} sealed {len(data)} bytes, due are {size}")
        return data

    def _check_epoch(self, asked: Arrays) -> None:
        epoch = int(asked["epoch"])
        self._insist(epoch == self._epoch, f"epoch {epoch} is not the one of its keys")

    def _check_members(self, members: Sequence[int]) -> None:
        self._insist(len(set(members)) == len(members), "a member is named twice")
        self._insist(self._me in members, "it is not a member itself")
        self._check_enough(members)

    def _check_enough(self, who: Sequence[int]) -> None:
        least = self._rules.least
        self._insist(
            len(who) >= least, f"a sum of {len(who)} parties is not opened, {least} are needed"
        )

    def _insist(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Refused(f"party {self._me} refuses: {otherwise}")


def cost(rules: Rules, size: int, afresh: bool) -> tuple[int, int]:
    """Bytes up and down of one sum of so many numbers, all parties together, nobody vanished.

    `afresh`: keys are exchanged for this sum. Requests are not counted; signatures as Ed25519.
    """
    parties, near = rules.asked, rules.degree(rules.asked)
    shared, sealed = SHARE + BOX, 2 * SHARE + KEY + BOX
    up = 8 * size + 2 * KEY + near * sealed + KEY + near * SHARE
    down = 2 * ORDER + 4 * parties + near * sealed
    if afresh:
        keys = 2 * KEY + 64
        up += keys + near * shared
        down += ORDER + 8 * parties + near * (keys + 12) + near * shared
    return parties * up, parties * down


def commitment(number: int, seed: bytes) -> bytes:
    """What binds a party to its b_i and says nothing about it."""
    return sha256(context("commit", number, seed)).digest()


def as_array(data: bytes) -> np.ndarray:
    """Bytes for the wire."""
    return np.frombuffer(data, np.uint8)


def _bytes(**named: bytes) -> Arrays:
    return {name: as_array(data) for name, data in named.items()}
