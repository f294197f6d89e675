"""The blind exchange: parties with columns learn the sum of the h_i, the server learns nothing.

For a head that sees only sum_i h_i (`Vertical.additive`). In the phase "share" party i sends

    h_i + sum_{j > i} r_ij - sum_{j < i} r_ij  (+ v, the first reader only)      modulo 2^64

in fixed point. r_ij comes from a key that only parties i and j have, so the r cancel in the sum;
the veil v from a seed that the first reader draws anew and seals for the other readers. The server
adds and passes on sum_i h_i + v, which is noise to it: I letters up, one down to each reader. A
further number, 1 at each party, shows the readers that nobody's share is missing or counted twice.

Among two parties the sum gives away the other's h: nothing can hide it then.
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
    Masks,
    context,
    derive,
    directory_of,
    open_box,
    seal,
)
from fedssca.problem.problem import Array, Batch, Vertical
from fedssca.rounds.exchange import SERVER, Ends, Outgoing

__all__ = ["Blind", "check_additive", "in_process", "relay"]

SEALED = KEY + 28
"""Bytes of a seed in its box."""


class Blind:
    """One party's keys for a run; `stage` gives its ends of exchanges."""

    def __init__(self, number: int, parties: int, run: bytes, identity: Identity) -> None:
        self.number, self.parties = number, parties
        self._run, self._identity, self._pair = run, identity, KeyPair()
        self._shared: dict[int, bytes] = {}
        self._stages: dict[str, BlindExchange] = {}
        self.masks, self.lock = Masks(), threading.Lock()

    def offer(self) -> dict[str, np.ndarray]:
        """The public key of this run, signed."""
        signature = self._identity.sign(self._said(self.number, self._pair.public))
        return {
            "key": np.frombuffer(self._pair.public, np.uint8),
            "signature": np.frombuffer(signature, np.uint8),
        }

    def meet(self, offers: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        """Agree on keys with all peers; Forged if an offer is not its party's."""
        if set(offers) != set(range(self.parties)):
            raise Forged(f"keys of parties {sorted(offers)}; there are {self.parties}")
        shared = {}
        for peer, offer in offers.items():
            public = offer["key"].tobytes()
            if peer == self.number:
                if public != self._pair.public:
                    raise Forged("somebody else's key came back as mine")
                continue
            self._identity.verify(peer, self._said(peer, public), offer["signature"].tobytes())
            pair = sorted((peer, self.number))
            shared[peer] = self._pair.agree(public, context("exchange", self._run, *pair))
        self._shared = shared

    def stage(self, name: str) -> BlindExchange:
        """Own end of the exchanges of one stage of the run, always the same object."""
        return self._stages.setdefault(name, BlindExchange(self, name))

    def key(self, peer: int, *purpose: str | int) -> bytes:
        """A key of this party and `peer` for one purpose."""
        return derive(self._shared[peer], context(*purpose))

    @property
    def met(self) -> bool:
        """Keys are agreed on with all peers."""
        return len(self._shared) == self.parties - 1

    def _said(self, number: int, public: bytes) -> bytes:
        return context("exchange key", self._run, number, public)


class BlindExchange:
    """An `Exchange` of sums."""

    def __init__(self, keys: Blind, stage: str) -> None:
        self._keys, self._stage = keys, stage
        self._count = 0
        self._readers: list[int] = []
        self._veil = b""
        self._own: np.ndarray | None = None
        self._total: np.ndarray | None = None

    def send(self, h: Array, readers: Sequence[int]) -> Outgoing:
        """Own h under masks, to the server."""
        keys = self._keys
        if not keys.met:
            raise RuntimeError(f"party {keys.number} has no keys of its peers yet")
        # Each party counts for itself: nobody can make it use a mask twice, which would give away
        # the difference of two vectors. If parties count differently, masks do not cancel.
        self._count += 1
        self._readers, self._total = list(readers), None
        self._own = np.asarray(h)
        vector = to_fixed(np.append(self._own, 1.0), keys.parties)
        with keys.lock:
            for peer in range(keys.parties):
                if peer != keys.number:
                    seed = keys.key(peer, "mask", self._stage, self._count)
                    keys.masks.add(vector, seed, 1 if peer > keys.number else -1)
            if keys.number != readers[0]:
                return {SERVER: {"h": vector}}
            self._veil = os.urandom(KEY)
            keys.masks.add(vector, self._veil)
        boxes = [
            seal(keys.key(reader, "seal"), self._veil, self._about(reader))
            for reader in readers[1:]
        ]
        return {SERVER: {"h": vector, "seals": np.frombuffer(b"".join(boxes), np.uint8)}}

    def receive(self, sender: int, payload: Any) -> None:
        """Lift the veil from the sum; Forged unless it is that of all parties in this round."""
        keys = self._keys
        if sender != SERVER or self._own is None:
            raise Forged(f"party {sender} sent what only the server may pass on")
        veil = self._veil
        if keys.number != self._readers[0]:
            key = keys.key(self._readers[0], "seal")
            veil = open_box(key, payload["seal"].tobytes(), self._about(keys.number))
        vector = np.array(payload["h"], np.uint64)
        with keys.lock:
            keys.masks.add(vector, veil, -1)
        total = from_fixed(vector)
        if len(total) != self._own.size + 1 or total[-1] != keys.parties:
            raise Forged("the sum is not that of every party's share, once each")
        self._total = total[:-1].reshape(self._own.shape).astype(self._own.dtype)

    def collect(self) -> list[Any]:
        """Own h, the rest of the sum in one peer's place, zeros in the others'."""
        if self._total is None or self._own is None:
            raise RuntimeError(f"party {self._keys.number} has no sum of h in this round")
        hs = [np.zeros_like(self._own) for _ in range(self._keys.parties)]
        hs[self._keys.number] = self._own
        if self._keys.parties > 1:
            hs[self._keys.number - 1] = self._total - self._own
        return hs

    def _about(self, reader: int) -> bytes:
        """What a box with a seed is: the keys are of this run and pair already."""
        return context("veil", self._stage, self._count, self._readers[0], reader)


def relay(sent: Mapping[int, Any], readers: Sequence[int]) -> Outgoing:
    """At the server: add up what it cannot read, and pass it on with each reader's box."""
    vectors = [np.asarray(payload["h"]) for payload in sent.values()]
    if len({vector.shape for vector in vectors}) != 1:
        raise UserError("the parties' shares are of different lengths: do all see the same rows?")
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
    """Parties in one process, for the simulator: they have met."""
    run = os.urandom(16)
    people = [Blind(i, parties, run, who) for i, who in enumerate(directory_of(parties))]
    offers = {one.number: one.offer() for one in people}
    for one in people:
        one.meet(offers)
    return Ends(lambda number, count: people[number].stage("train"), relay)


def check_additive(split: Vertical, w0: Array, hs: Sequence[Array], batch: Batch) -> None:
    """A UserError unless head(w_0, hs) stays as it is when all of sum(hs) is in one place."""
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
        "leave additive out, and parties exchange them in pairs"
    )
