"""The hidden exchange: parties that hold columns learn the sum of the h_i, the server nothing.

It serves a head that depends only on sum_i h_i (`Vertical.additive`). In the phase "share" party i
sends the server

    h_i + sum_{j > i} r_ij - sum_{j < i} r_ij  (+ v, the first reader only)      modulo 2^64

in fixed point. The masks r_ij come from keys that only parties i and j have, and cancel in the sum.
The mask v comes from a new seed that the first reader draws and seals for the other readers. The
server forwards sum_i h_i + v to each reader, which is indistinguishable from random numbers without
v. A check that is linear like the sum (`linear_check`) travels with it under the same masks: the
readers notice a share that is missing, doubled or of another round, and any change by the server.

With two parties each of them can compute the other's h from the sum; no exchange can prevent that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedssca.errors import UserError
from fedssca.privacy.sums.fixed_point import from_fixed, to_fixed
from fedssca.privacy.sums.keys import (
    KEY,
    Forged,
    Identity,
    KeyPair,
    MaskStream,
    derive,
    open_box,
    pack_fields,
    seal,
    simulated_identities,
)
from fedssca.privacy.sums.linear_check import LIMBS, LinearCheck
from fedssca.problem.problem import Array, Batch, Vertical
from fedssca.rounds.codec import InvalidMessage
from fedssca.rounds.exchange import SERVER, Ends, Outgoing

__all__ = ["CHECKED", "SEALED", "ExchangeKeys", "check_additive", "in_process", "relay"]

SEALED = KEY + 28
"""The number of bytes of a sealed seed."""
CHECKED = 8 * LIMBS
"""The number of bytes that the check adds to a vector."""


class ExchangeKeys:
    """The keys that one party shares with each other party in a run."""

    def __init__(self, number: int, parties: int, run: bytes, identity: Identity) -> None:
        self.number, self.parties = number, parties
        self._run, self._identity, self._pair = run, identity, KeyPair()
        self._shared: dict[int, bytes] = {}
        self._exchanges: dict[str, HiddenExchange] = {}
        self._check = LinearCheck(os.urandom(KEY)) if parties == 1 else None
        self.masks, self.lock = MaskStream(), threading.Lock()

    def offer(self) -> dict[str, np.ndarray]:
        """Return this party's public key of the run, signed."""
        signature = self._identity.sign(self._signed(self.number, self._pair.public))
        return {
            "key": np.frombuffer(self._pair.public, np.uint8),
            "signature": np.frombuffer(signature, np.uint8),
        }

    def agree(self, offers: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        """Compute the keys shared with all other parties; raise Forged if an offer is forged."""
        if set(offers) != set(range(self.parties)):
            raise Forged(f"keys came from parties {sorted(offers)}; there are {self.parties}")
        shared = {}
        for peer, offer in offers.items():
            public = offer["key"].tobytes()
            if peer == self.number:
                if public != self._pair.public:
                    raise Forged("another key came back in this party's name")
                continue
            self._identity.verify(peer, self._signed(peer, public), offer["signature"].tobytes())
            pair = sorted((peer, self.number))
            shared[peer] = self._pair.agree(public, pack_fields("exchange", self._run, *pair))
        self._shared = shared

    def seal_check(self) -> dict[int, bytes]:
        """At party 0, after `agree`: choose the secret of the checks; return it sealed for each."""
        seed = os.urandom(KEY)
        self._check = LinearCheck(seed)
        return {
            peer: seal(self.key(peer, "seal"), seed, self._about_check(peer))
            for peer in range(self.parties)
            if peer != self.number
        }

    def open_check(self, box: bytes) -> None:
        """At the others, after `agree`: take the secret of the checks; Forged if it is forged."""
        about = self._about_check(self.number)
        self._check = LinearCheck(open_box(self.key(0, "seal"), box, about))

    @property
    def check(self) -> LinearCheck:
        """The check of sums, which only the parties can make."""
        assert self._check is not None
        return self._check

    def exchange(self, stage: str) -> HiddenExchange:
        """Return this party's side of the exchanges of one stage, always the same object."""
        return self._exchanges.setdefault(stage, HiddenExchange(self, stage))

    def key(self, peer: int, *purpose: str | int) -> bytes:
        """Return the key that this party shares with `peer` for one purpose."""
        return derive(self._shared[peer], pack_fields(*purpose))

    @property
    def agreed(self) -> bool:
        """Whether this party shares a key with every other party, and the secret of the checks."""
        return len(self._shared) == self.parties - 1 and self._check is not None

    def _about_check(self, peer: int) -> bytes:
        return pack_fields("check", self._run, peer)

    def _signed(self, number: int, public: bytes) -> bytes:
        return pack_fields("exchange key", self._run, number, public)


class HiddenExchange:
    """One party's side of an `Exchange` in which the readers learn only the sum of the h_i."""

    def __init__(self, keys: ExchangeKeys, stage: str) -> None:
        self._keys, self._stage = keys, stage
        self._count = 0
        self._readers: list[int] = []
        self._seed = b""
        self._own: np.ndarray | None = None
        self._total: np.ndarray | None = None

    def send(self, h: Array, readers: Sequence[int]) -> Outgoing:
        """Send this party's masked h to the server."""
        keys = self._keys
        if not keys.agreed:
            raise InvalidMessage(f"party {keys.number} has no keys of its peers yet")
        # Each party counts its own exchanges, so nobody can make it use a mask twice, which would
        # reveal the difference of two vectors. If counts differ, the masks do not cancel.
        self._count += 1
        self._readers, self._total = list(readers), None
        self._own = np.asarray(h)
        bare = to_fixed(self._own.ravel(), keys.parties)
        vector = np.concatenate([bare, keys.check.limbs(bare)])
        with keys.lock:
            for peer in range(keys.parties):
                if peer != keys.number:
                    seed = keys.key(peer, "mask", self._stage, self._count)
                    keys.masks.add(vector, seed, 1 if peer > keys.number else -1)
            if keys.number != readers[0]:
                return {SERVER: {"h": vector}}
            self._seed = os.urandom(KEY)
            keys.masks.add(vector, self._seed)
        boxes = [
            seal(keys.key(reader, "seal"), self._seed, self._about(reader))
            for reader in readers[1:]
        ]
        return {SERVER: {"h": vector, "seals": np.frombuffer(b"".join(boxes), np.uint8)}}

    def receive(self, sender: int, payload: Any) -> None:
        """Remove the readers' mask from the sum; raise Forged if it is not that of all shares."""
        keys = self._keys
        if sender != SERVER or self._own is None:
            raise Forged(f"party {sender} sent a sum, which only the server may send")
        seed = self._seed
        if keys.number != self._readers[0]:
            key = keys.key(self._readers[0], "seal")
            seed = open_box(key, payload["seal"].tobytes(), self._about(keys.number))
        vector = np.array(payload["h"], np.uint64)
        with keys.lock:
            keys.masks.add(vector, seed, -1)
        total, limbs = vector[:-LIMBS], vector[-LIMBS:]
        if len(total) != self._own.size or not keys.check.holds(total, limbs, keys.parties):
            raise Forged("the sum is not that of every party's share, once each")
        self._total = from_fixed(total).reshape(self._own.shape).astype(self._own.dtype)

    def collect(self) -> list[Any]:
        """Return a list with the right sum: own h, the rest of the sum at one peer, zeros."""
        if self._total is None or self._own is None:
            raise InvalidMessage(f"party {self._keys.number} has no sum of h in this round")
        hs = [np.zeros_like(self._own) for _ in range(self._keys.parties)]
        hs[self._keys.number] = self._own
        if self._keys.parties > 1:
            hs[self._keys.number - 1] = self._total - self._own
        return hs

    def _about(self, reader: int) -> bytes:
        """Return the associated data of a sealed seed; the key already names run and parties."""
        return pack_fields("veil", self._stage, self._count, self._readers[0], reader)


def relay(sent: Mapping[int, Any], readers: Sequence[int]) -> Outgoing:
    """At the server: add the masked vectors, and send each reader the sum and its sealed seed."""
    vectors = [np.asarray(payload["h"]) for payload in sent.values()]
    if len({vector.shape for vector in vectors}) != 1:
        raise UserError(
            "the vectors of the parties have different lengths: do all parties have the same rows?"
        )
    total = np.sum(vectors, axis=0, dtype=np.uint64)
    boxes = np.asarray(sent[readers[0]]["seals"])
    if boxes.size != SEALED * (len(readers) - 1):
        raise UserError(f"party {readers[0]} sent {boxes.size} bytes of sealed seeds")
    boxes = boxes.reshape(-1, SEALED)
    none = np.zeros(0, np.uint8)
    first = {readers[0]: {"h": total, "seal": none}}
    return first | {
        reader: {"h": total, "seal": box} for reader, box in zip(readers[1:], boxes, strict=True)
    }


def in_process(parties: int) -> Ends:
    """Return the exchange of parties in one process, which have already agreed on keys."""
    run = os.urandom(16)
    identities = simulated_identities(parties)
    keys = [ExchangeKeys(number, parties, run, own) for number, own in enumerate(identities)]
    offers = {own.number: own.offer() for own in keys}
    for own in keys:
        own.agree(offers)
    for peer, box in keys[0].seal_check().items() if parties > 1 else ():
        keys[peer].open_check(box)
    return Ends(lambda number, count: keys[number].exchange("train"), relay)


def check_additive(split: Vertical, w0: Array, hs: Sequence[Array], batch: Batch) -> None:
    """Raise a UserError if head(w_0, hs) depends on more than the sum of the hs."""
    shapes = {h.shape for h in hs}
    if len(shapes) == 1:
        draw = np.random.default_rng(0).normal
        drawn = [np.asarray(h) + draw(size=h.shape).astype(h.dtype) for h in hs]
        joined = [sum(drawn[1:], start=drawn[0]), *(np.zeros_like(h) for h in drawn[1:])]
        apart, one = (np.asarray(jax.jit(split.head)(w0, each, batch)) for each in (drawn, joined))
        rough = 100 * float(np.finfo(one.dtype).eps) ** 0.75
        if np.allclose(apart, one, rtol=rough, atol=rough * float(np.abs(apart).max(initial=1.0))):
            return
    raise UserError(
        "the problem is declared additive, but its head depends on more than the sum of the h_i: "
        "leave additive out, then the parties exchange the h_i in pairs"
    )
