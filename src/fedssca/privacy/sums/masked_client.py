"""The client's half of the secure sum: the server learns the sum of the messages and nothing else.

Double masking after Bonawitz et al. (2017) on the sparse graph of Bell et al. (2020). Party i sends

    y_i = x_i + PRG(b_i) + sum_{j > i} PRG(s_ij) - sum_{j < i} PRG(s_ij)      modulo 2^64

(numbers of few bits: modulo 2^16 or 2^32, see `sum_layout`),

where j runs over its neighbours, and the seeds s_ij and b_i are new in every sum. The masks of the
s_ij cancel among the parties that answer. The neighbours hold shares of b_i, which they give the
server if party i answered, and shares of the secret r_i that opens its s_ij (`mask_seeds`), which
they give the server if it did not; never both. So a party may drop out at any moment. No party
sends its own b_i: it cannot know what the server told its neighbours.

    phase     request -> answer
    keys      -> a signed public key                                 \\  once, and again after
    shares    the contacts' keys -> sealed seeds, shares of r_i      /   a party dropped out
    reply     -> y_i, the sealed seeds of the next sum, shares of b_i and of the next r_i
    unmask    who answered and who did not -> shares, which open only if a quorum of witnesses
              was told the same (`agreement`)

Two parties agree on a root key when they first meet in a run, from public keys that they signed for
this run; the keys of their channels come from it by hashing, other ones in every epoch. So only
the first exchange of keys needs signatures and key agreements.

The seeds of the next sum are sealed together with this sum, so a sum takes two exchanges. A secret
r_i that was reconstructed opens the seeds of one sum only, so earlier messages of its owner stay
hidden. The server's half is in `masked_server`; `graph` argues what holds against which server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from fedssca.privacy.sums import Refused
from fedssca.privacy.sums.agreement import agreement_key, lock, pads, statement
from fedssca.privacy.sums.graph import MaskGraph, Rules
from fedssca.privacy.sums.keys import (
    KEY,
    NONCE,
    Forged,
    Identity,
    KeyPair,
    MaskStream,
    as_array,
    keyed_hash,
    open_box,
    pack_fields,
    seal,
    unpack_fields,
)
from fedssca.privacy.sums.mask_seeds import SEALING, seal_seeds, seed_after
from fedssca.privacy.sums.shamir import SHARE, split
from fedssca.privacy.sums.sum_layout import SumLayout
from fedssca.rounds.aggregate import Arrays

__all__ = ["MaskedSumClient", "commitment", "cost", "digest_of"]

BOX = 4 + NONCE + 16
"""The number of bytes that sealing adds: length, nonce and tag."""
ORDER = 16
"""The number of bytes that name the epoch and the sum."""
REQUIRED = {
    "keys": {"epoch"},
    "shares": {"epoch", "members", "keys"},
    "reply": {"epoch", "number"},
    "unmask": {"epoch", "number", "alive", "dead", "boxes"},
}
"""The arrays that each phase needs; the first reply of an epoch also needs members and boxes."""


class RootKey(NamedTuple):
    """What two parties agreed on when they first met in a run."""

    public: bytes
    """The other party's public key, whose signature was verified."""
    key: bytes
    """The key from which those of their channels are derived, one for each epoch."""


class PendingSum(NamedTuple):
    """A sum to which this party sent its masked message and which is not yet opened."""

    number: int
    """The number of the sum in the run."""
    held: dict[int, bytes]
    """For each neighbour with which this party shared masks: the share of its secret r."""


class MaskedSumClient:
    """Masks the messages of one party, and helps to open each sum once."""

    def __init__(self, number: int, identity: Identity, rules: Rules) -> None:
        self._me, self._identity, self._rules = number, identity, rules
        self._masks = MaskStream()
        self._epoch = self._number = 0
        self._channel = KeyPair()
        self._sign = identity.sign(self._signed(number, self._channel.public))
        self._roots: dict[int, RootKey] = {}
        self._forget()

    def _forget(self) -> None:
        """End an epoch: all that is left of it are the root keys, and its number."""
        self._graph: MaskGraph | None = None
        self._neighbours: tuple[int, ...] = ()
        self._channels: dict[int, bytes] = {}
        self._vouching: dict[int, bytes] = {}
        """The keys of the pads that this party and its contacts exchange."""
        self._members: tuple[int, ...] = ()
        self._seeds: dict[int, bytes] = {}
        """The seeds of the masks of the next sum, one for each neighbour."""
        self._held: dict[int, bytes] | None = None
        """This party's shares of the secrets that open the seeds of its neighbours."""
        self._pending: PendingSum | None = None

    def handle(self, phase: str, asked: Arrays, answer: Callable[[], Any]) -> Arrays:
        """Return what goes to the server; `answer` computes the message that is to be hidden."""
        steps: dict[str, Callable[[Arrays], Arrays]] = {
            "keys": self._on_keys,
            "shares": self._on_shares,
            "reply": lambda asked: self._on_reply(asked, answer),
            "unmask": self._on_unmask,
        }
        if phase not in steps:
            raise Refused(f"a secure sum has no phase {phase!r}")
        complete = asked.keys() >= REQUIRED[phase]
        self._require(complete, f"the request {phase!r} is incomplete")
        try:
            return steps[phase](asked)
        except Forged as forged:
            raise Refused(f"party {self._me}, {phase}: {forged}") from None

    def _on_keys(self, asked: Arrays) -> Arrays:
        epoch = int(asked["epoch"])
        self._require(epoch > self._epoch, f"epoch {epoch} is not new")
        self._forget()
        self._epoch = epoch
        return _bytes(channel=self._channel.public, sign=self._sign)

    def _signed(self, who: int, channel: bytes) -> bytes:
        return pack_fields("channel", self._rules.run, who, channel)

    def _root(self, who: int, public: bytes, sign: bytes) -> bytes:
        """The root key shared with a party; its signature is verified when its key is new."""
        known = self._roots.get(who)
        if known is None or known.public != public:
            self._identity.verify(who, self._signed(who, public), sign)
            about = pack_fields("root", self._rules.run, *sorted((self._me, who)))
            known = self._roots[who] = RootKey(public, self._channel.agree(public, about))
        return known.key

    def _on_shares(self, asked: Arrays) -> Arrays:
        self._check_epoch(asked)
        self._require(self._graph is None, "it has already sent the shares of this epoch")
        members = _parties(asked["members"])
        self._check_members(members)
        graph = self._rules.graph(members)
        near, contacts = graph.neighbours(self._me), graph.contacts(self._me)
        keys = unpack_fields(asked["keys"].tobytes(), 2 * len(contacts))
        everyone = digest_of(members)  # Parties that were told other members share no keys.
        about = self._about("way", everyone)
        for who, public, sign in zip(contacts, keys[::2], keys[1::2], strict=True):
            self._channels[who] = keyed_hash(self._root(who, public, sign), about)
            self._vouching[who] = agreement_key(self._channels[who])
        self._graph, self._neighbours = graph, near
        secret, sealed = self._next_seeds(0)
        boxes = dict(zip(near, split(secret, len(near), graph.shares), strict=True))
        return _bytes(seeds=sealed) | {"boxes": self._boxes(0, boxes)}

    def _next_seeds(self, number: int) -> tuple[bytes, bytes]:
        """Make the seeds of the sum that follows sum `number`: a new secret, which opens them."""
        self._seeds = {who: seed_after(self._channels[who], number) for who in self._neighbours}
        secret = os.urandom(KEY)
        return secret, seal_seeds(secret, self._seeds.values())

    def _on_reply(self, asked: Arrays, answer: Callable[[], Any]) -> Arrays:
        self._check_epoch(asked)
        graph, number = self._graph, int(asked["number"])
        self._require(graph is not None, "reply came before shares")
        assert graph is not None
        self._require(number > self._number, f"sum {number} is not new")
        if self._held is None:
            self._require(not self._members, "this epoch has ended and needs new keys")
            self._begin(asked)
        held = self._held
        assert held is not None
        message = answer()
        vectors = SumLayout.of(message).pack(message, len(self._members))
        for who in held:
            sign = 1 if self._me < who else -1
            self._masks.add_to_all(vectors.values(), self._seeds[who], sign)
        own = os.urandom(KEY)
        self._masks.add_to_all(vectors.values(), own)
        secret, sealed = self._next_seeds(number)
        halves = (split(each, len(self._neighbours), graph.shares) for each in (own, secret))
        shares = dict(zip(self._neighbours, zip(*halves, strict=True), strict=True))
        boxes = {who: b"".join(shares[who]) for who in held}
        self._number, self._held = number, None
        self._pending = PendingSum(number, held)
        return _bytes(seeds=sealed, commit=commitment(number, own)) | {
            **vectors,
            "boxes": self._boxes(number, boxes),
        }

    def _begin(self, asked: Arrays) -> None:
        """Start the first sum of an epoch: store its members and the shares of the neighbours."""
        assert self._graph is not None
        self._require(asked.keys() >= {"members", "boxes"}, "an epoch started without its members")
        members = _parties(asked["members"])
        self._check_members(members)
        self._require(set(members) <= set(self._graph.order), "some members have no keys")
        self._check_protected(members)
        there = set(members)
        near = [who for who in self._neighbours if who in there]
        boxes = unpack_fields(asked["boxes"].tobytes(), len(near))
        opened = self._opened(0, zip(near, boxes, strict=True), SHARE)
        self._held = dict(zip(near, opened, strict=True))
        self._members = tuple(members)

    def _on_unmask(self, asked: Arrays) -> Arrays:
        self._check_epoch(asked)
        pending, number = self._pending, int(asked["number"])
        alive, dead = _parties(asked["alive"]), _parties(asked["dead"])
        ready = pending is not None and pending.number == number
        self._require(ready, f"sum {number} is not its last sum, or was opened before")
        assert pending is not None
        assert self._graph is not None
        living, lost = set(alive), set(dead)
        self._require(not living & lost, "a party is listed both as alive and as dead")
        everyone = sorted(alive + dead) == sorted(self._members)
        self._require(everyone, "the alive and the dead parties are not the members of this sum")
        self._require(self._me in alive, "it is itself listed as dead")
        self._check_enough(alive)
        self._check_protected(alive)
        near = [who for who in pending.held if who in living]
        gone = [who for who in pending.held if who in lost]
        boxes = unpack_fields(asked["boxes"].tobytes(), len(near))
        inside = list(self._opened(number, zip(near, boxes, strict=True), 2 * SHARE))
        self._pending = None  # This sum cannot be opened a second time.
        if not gone and len(alive) == len(self._members):
            self._held = {who: data[SHARE:] for who, data in zip(near, inside, strict=True)}
        revealed = [data[:SHARE] for data in inside] + [pending.held[who] for who in gone]
        about = self._about("sum", number, digest_of(self._graph.order), digest_of(self._members))
        return self._locked(b"".join(revealed), statement(about, alive, dead), living)

    def _locked(self, revealed: bytes, told: bytes, alive: set[int]) -> Arrays:
        """Shares that open with the pads of a quorum of witnesses, and the own pads for others."""
        assert self._graph is not None
        witnesses = self._graph.witnesses_of(self._me, alive)
        keys = {who: self._vouching[who] for who in witnesses}
        locked = lock(revealed, keys, told, self._me, self._graph.needed_for(self._me))
        others = {}
        if self._me in self._graph.witnesses:
            others = {who: key for who, key in self._vouching.items() if who in alive}
        return _bytes(box=locked.box, locks=locked.locks, pads=pads(others, told, self._me))

    def _about(self, what: str, *rest: int | bytes) -> bytes:
        return pack_fields(what, self._rules.run, self._epoch, *rest)

    def _boxes(self, number: int, contents: Mapping[int, bytes]) -> np.ndarray:
        """Seal each content for its neighbour."""
        about = self._about("box", number)
        sealed = (
            seal(self._channels[who], data, about + _pair(self._me, who))
            for who, data in contents.items()
        )
        return as_array(pack_fields(*sealed))

    def _opened(
        self, number: int, boxes: Iterable[tuple[int, bytes]], size: int
    ) -> Iterator[bytes]:
        """Open a box of each of some neighbours; all contents have the same size."""
        about = self._about("box", number)
        for sender, box in boxes:
            data = open_box(self._channels[sender], box, about + _pair(sender, self._me))
            if len(data) != size:
                raise Forged(f"party {sender} sealed {len(data)} bytes, expected are {size}")
            yield data

    def _check_epoch(self, asked: Arrays) -> None:
        epoch = int(asked["epoch"])
        self._require(epoch == self._epoch, f"its keys are not of epoch {epoch}")

    def _check_members(self, members: Sequence[int]) -> None:
        self._require(len(set(members)) == len(members), "a member is named twice")
        self._require(self._me in members, "it is not a member itself")
        self._check_enough(members)

    def _check_enough(self, who: Sequence[int]) -> None:
        least = self._rules.least
        self._require(len(who) >= least, f"a sum needs {least} parties, this one has {len(who)}")

    def _check_protected(self, there: Sequence[int]) -> None:
        """Every party needs enough neighbours, so that no group can be cut off from the others."""
        assert self._graph is not None
        held = not self._graph.unprotected(there)
        self._require(held, "too few neighbours or witnesses are left to hide behind")

    def _require(self, holds: bool, problem: str) -> None:
        if not holds:
            raise Refused(f"party {self._me} refuses: {problem}")


def cost(rules: Rules, layout: SumLayout, afresh: bool) -> tuple[int, int]:
    """Return the bytes up and down of one sum of such messages over all parties, if all answer.

    `afresh` says that keys are exchanged for this sum. The requests of the round are not counted,
    and signatures count as Ed25519.
    """
    parties, near = rules.asked, rules.degree(rules.asked)
    shared, sealed, seeds = SHARE + BOX, 2 * SHARE + BOX, near * KEY + SEALING
    up = layout.bytes(parties) + KEY + seeds + near * sealed + near * SHARE + BOX - 4
    down = 2 * ORDER + 4 * parties + near * sealed
    graph = rules.graph(range(parties))
    vouched = 2 * SHARE * len(graph.witnesses) * (parties - 1)
    more_up = more_down = 0
    if afresh:
        keys = KEY + 64
        met = sum(len(graph.contacts(who)) for who in range(parties))
        more_up = parties * (keys + seeds + near * shared)
        more_down = parties * (ORDER + 8 * parties + near * shared) + met * (keys + 8)
    return parties * up + vouched + more_up, parties * down + more_down


def commitment(number: int, seed: bytes) -> bytes:
    """Return the hash that binds a party to its seed b_i without revealing it."""
    return sha256(pack_fields("commit", number, seed)).digest()


def digest_of(members: Iterable[int]) -> bytes:
    """Return the hash of a set of parties."""
    return sha256(np.array(sorted(members), ">u8").tobytes()).digest()


def _pair(sender: int, receiver: int) -> bytes:
    return sender.to_bytes(8, "big") + receiver.to_bytes(8, "big")


def _parties(numbers: np.ndarray) -> list[int]:
    found: list[int] = numbers.astype(np.int64).ravel().tolist()
    return found


def _bytes(**named: bytes) -> Arrays:
    return {name: as_array(data) for name, data in named.items()}
