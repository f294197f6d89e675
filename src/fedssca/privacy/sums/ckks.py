"""The homomorphic sum: clients encrypt (CKKS), the server adds ciphertexts, one client opens it.

    keys    the key holder -> a public key, signed
    reply   the public key, a scale for every part of the message -> the encrypted message
    open    the encrypted sum -> the key holder -> the sum

Numbers are encrypted with 40 bits behind the point in a modulus of 54 (N = 4096, 128 bits of
security), so a sum must stay below 2^12 and is off by about 2^-29. Each part of a message is
brought to that range by a power of two, taken from the sum before. Opened sums carry the noise of
their encryption, which tells about the key: the key holder drowns it in noise of 2^-24, and makes a
new key every 100 sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import tenseal

from fedssca.privacy.sums.fixed_point import Layout
from fedssca.privacy.sums.keys import Forged, Identity, context, parts_of
from fedssca.privacy.sums.masks import Refused, as_array
from fedssca.rounds.aggregate import Arrays, Ask, Gathered, complete

__all__ = ["CipherAdder", "Encrypter", "cost"]

SLOTS = 2048
"""Numbers in one ciphertext."""
CIPHER = 61_700
"""Bytes of a ciphertext, packed; it varies by some hundreds."""
ROOM = 2.0**12
"""A sum's absolute value stays below this."""
TARGET = 2.0**8
"""What the largest number of a sum is brought to: 16 times smaller than what there is room for."""
DROWN = 2.0**-24
"""Standard deviation of the noise on an opened sum: 30 times that of ten clients' encryption."""
RENEW = 100
"""Sums that are opened under one key."""
TRIES = 40
"""How often clients may say that they have no room,"""
STEP = 6
"""and by how many powers of two a part is then scaled down."""


def cost(size: int, clients: int) -> tuple[int, int]:
    """Bytes up and down of one sum of so many numbers, all clients together; requests apart."""
    cipher = -(-size // SLOTS) * CIPHER
    return clients * cipher + 8 * size, cipher


def exponents(layout: Layout, vector: np.ndarray, target: float) -> np.ndarray:
    """For every leaf the power of two that brings its largest number just below `target`."""
    found = []
    for part in _leaves(layout, vector):
        most = float(np.max(np.abs(part), initial=0.0))
        found.append(int(np.floor(np.log2(target / most))) if most else 0)
    return np.array(found, np.int32)


def _leaves(layout: Layout, vector: np.ndarray) -> Iterator[np.ndarray]:
    at = 0
    for shape in layout.shapes:
        size = int(np.prod(shape))
        yield vector[at : at + size]
        at += size


def _scales(layout: Layout, powers: np.ndarray) -> np.ndarray:
    """2^power for every number of the message."""
    sizes = [int(np.prod(shape)) for shape in layout.shapes]
    return np.repeat(np.ldexp(1.0, np.asarray(powers, np.int32)), sizes)


def _signed(run: bytes, serial: int, public: bytes) -> bytes:
    return context("ckks", run, serial, sha256(public).digest())


class Encrypter:
    """A client's half; the key holder's too."""

    def __init__(self, number: int, identity: Identity, run: bytes, holder: int) -> None:
        self._me, self._identity, self._run, self._holder = number, identity, run, holder
        self._secret: Any = None
        self._public: Any = None
        self._serial = self._opened = 0
        self._noise = np.random.default_rng()

    def handle(self, phase: str, asked: Arrays, answer: Callable[[], Any]) -> Arrays:
        """Answer the server; `answer` computes the message that is to be hidden."""
        message = answer() if phase == "reply" else None
        try:
            if phase == "reply":
                return self._on_reply(asked, message)
            if phase == "keys" and self._me == self._holder:
                return self._on_keys(asked)
            if phase == "open" and self._me == self._holder:
                return self._on_open(asked)
        except KeyError as missing:
            raise Refused(f"{phase} of an encrypted sum came without {missing}") from None
        except Forged as forged:
            raise Refused(f"party {self._me}, {phase}: {forged}") from None
        raise Refused(f"party {self._me} refuses: {phase!r} is not for it")

    def _on_keys(self, asked: Arrays) -> Arrays:
        self._check_serial(asked, self._serial + 1)
        self._serial += 1
        self._secret = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=2 * SLOTS, coeff_mod_bit_sizes=[54, 54]
        )
        self._secret.global_scale = 2.0**40
        public = self._secret.serialize(
            save_public_key=True,
            save_secret_key=False,
            save_galois_keys=False,
            save_relin_keys=False,
        )
        sign = self._identity.sign(_signed(self._run, self._serial, public))
        return {"public": as_array(public), "sign": as_array(sign)}

    def _on_reply(self, asked: Arrays, message: Any) -> Arrays:
        layout = Layout.of(message)
        vector = layout.pack(message)
        if "powers" not in asked:  # the scale of the very first sum: from this client's own
            return {"powers": exponents(layout, vector, TARGET / int(asked["addends"]))}
        if "public" in asked:
            self._learn(asked)
        if self._public is None:
            raise Refused(f"party {self._me} has no key to encrypt with")
        scaled = vector * _scales(layout, asked["powers"])
        if not np.isfinite(scaled).all():
            raise Refused("a number that should be added up is not finite")
        room = ROOM / int(asked["addends"])
        large = [np.max(np.abs(part), initial=0.0) >= room for part in _leaves(layout, scaled)]
        if any(large):
            return {"large": np.array(large, np.int32)}
        parts = (
            tenseal.ckks_vector(self._public, scaled[at : at + SLOTS]).serialize()
            for at in range(0, len(scaled), SLOTS)
        )
        return {"cipher": as_array(context(*parts))}

    def _learn(self, asked: Arrays) -> None:
        public, serial = asked["public"].tobytes(), int(asked["serial"])
        said = _signed(self._run, serial, public)
        self._identity.verify(self._holder, said, asked["sign"].tobytes())
        self._public = tenseal.context_from(public)

    def _on_open(self, asked: Arrays) -> Arrays:
        """One opening for one number; the noise that would tell about the key is drowned."""
        number = int(asked["number"])
        if number <= self._opened or self._secret is None:
            raise Refused(f"party {self._me} refuses: sum {number} is open already, or not its own")
        self._opened = number
        self._check_serial(asked, self._serial)
        parts = parts_of(asked["cipher"].tobytes(), int(asked["parts"]))
        plain = np.concatenate(
            [np.array(tenseal.ckks_vector_from(self._secret, part).decrypt()) for part in parts]
            or [np.zeros(0)]
        )
        plain += DROWN * self._noise.standard_normal(len(plain))
        return {"plain": np.where(np.abs(plain) < 8 * DROWN, 0.0, plain)}  # nothing stays nothing

    def _check_serial(self, asked: Arrays, due: int) -> None:
        if int(asked["serial"]) != due:
            raise Refused(f"party {self._me} refuses: key {int(asked['serial'])}, due is {due}")


class CipherAdder:
    """The server's half: it has the public key only."""

    def __init__(self, run: bytes, holder: int) -> None:
        self._run, self._holder = run, holder
        self._serial = self._number = self._begun = 0
        self._key: Arrays = {}
        self._context: Any = None
        self._know: set[int] = set()
        """Who has the public key."""
        self._powers: dict[Layout, np.ndarray] = {}

    def gather(self, ask: Ask, asked: Sequence[int], like: Any) -> Gathered:
        """The sum over those of `asked` who answer; `like` has the shape of a message."""
        layout = Layout.of(like)
        self._number += 1
        if not self._key or self._number - self._begun >= RENEW:
            self._renew(ask)
        addends = {"addends": np.asarray(len(asked), np.int32)}
        powers = self._powers.get(layout)
        if powers is None:
            powers = self._first_scale(ask, asked, addends, layout)
        for _ in range(TRIES):
            found = self._ciphers(ask, asked, addends | {"powers": powers})
            large = [said["large"] for said in found.values() if "large" in said]
            if not large:
                break
            powers = powers - STEP * (np.max(large, axis=0) > 0).astype(np.int32)
        else:
            raise Refused(f"no scale fits the messages of all clients after {TRIES} tries")
        if not found:
            raise Refused("no client answers")
        plain = self._open(ask, list(found.values()), layout) / _scales(layout, powers)
        self._powers[layout] = exponents(layout, plain, TARGET)
        return Gathered(layout.unpack(plain), tuple(sorted(found)))

    def _renew(self, ask: Ask) -> None:
        self._serial += 1
        self._begun, self._know = self._number, set()
        serial = {"serial": np.asarray(self._serial, np.int64)}
        found = complete(ask("keys", {self._holder: serial}), "public", "sign")
        self._key = serial | self._holds(found)
        self._context = tenseal.context_from(self._key["public"].tobytes())

    def _first_scale(
        self, ask: Ask, asked: Sequence[int], addends: Arrays, layout: Layout
    ) -> np.ndarray:
        for who in asked:
            for said in ask("reply", {who: addends}).values():
                powers = said.get("powers")
                if powers is not None and powers.shape == (len(layout.shapes),):
                    return np.asarray(powers)
        raise Refused("no client answers")

    def _ciphers(self, ask: Ask, asked: Sequence[int], order: Arrays) -> dict[int, Arrays]:
        powers = order["powers"]
        letters = {who: order if who in self._know else order | self._key for who in asked}
        found = {
            who: said
            for who, said in ask("reply", letters).items()
            if "cipher" in said or said.get("large", powers[:0]).shape == powers.shape
        }
        self._know |= set(found)
        return found

    def _open(self, ask: Ask, found: list[Arrays], layout: Layout) -> np.ndarray:
        """Add up ciphertexts and have the sum opened."""
        count = -(-layout.size // SLOTS)
        total: list[Any] = []
        for said in found:
            parts = [
                tenseal.ckks_vector_from(self._context, part)
                for part in parts_of(said["cipher"].tobytes(), count)
            ]
            total = [a + b for a, b in zip(total, parts, strict=True)] if total else parts
        order: Arrays = {
            "serial": np.asarray(self._serial, np.int64),
            "number": np.asarray(self._number, np.int64),
            "parts": np.asarray(count, np.int32),
            "cipher": as_array(context(*(part.serialize() for part in total))),
        }
        opened = complete(ask("open", {self._holder: order}), "plain")
        plain = np.asarray(self._holds(opened)["plain"], np.float64)
        if plain.shape != (layout.size,):
            raise Refused(f"the key holder opened {plain.shape} numbers, due are {layout.size}")
        return plain

    def _holds(self, found: Mapping[int, Any]) -> Arrays:
        if self._holder not in found:
            raise Refused(
                f"client {self._holder}, which holds the key (privacy.key_holder), is away"
            )
        held: Arrays = found[self._holder]
        return held
