"""The encrypted sum: clients encrypt, the server adds ciphertexts (CKKS), one client decrypts it.

    phase   request -> answer
    keys    to the key holder -> its signed public key
    reply   the public key and a scale for every part of the message -> the encrypted message
    open    to the key holder: the encrypted sum -> the sum

Numbers are encrypted with 40 fractional bits in a modulus of 54 bits (N = 4096, 128 bits of
security), so the absolute value of a sum must stay below 2^12, and its error is about 2^-29. Each
part of a message is scaled to that range by a power of two that is taken from the sum before. A
decrypted sum contains the noise of its encryption, which reveals something about the secret key.
Therefore the key holder adds noise with a standard deviation of 2^-24 and makes a new key every
100 sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import tenseal

from fedssca.privacy.sums import Refused
from fedssca.privacy.sums.fixed_point import Layout
from fedssca.privacy.sums.keys import Forged, Identity, as_array, pack_fields, unpack_fields
from fedssca.rounds.aggregate import Arrays, Ask, Gathered, complete

__all__ = ["EncryptedSumClient", "EncryptedSumServer", "cost"]

SLOTS = 2048
"""The count of numbers in one ciphertext."""
CIPHER = 61_700
"""The number of bytes of a serialised ciphertext; it varies by some hundreds."""
RANGE = 2.0**12
"""The absolute value of a sum must stay below this."""
TARGET = 2.0**8
"""The largest number of a sum is scaled to this value, 16 times below the range."""
OPENING_NOISE = 2.0**-24
"""The noise standard deviation on a decrypted sum: 30 times that of ten clients' encryption."""
RENEW = 100
"""The number of sums that are decrypted with one key."""
TRIES = 40
"""How often a sum is asked for again because a message exceeds the range."""
STEP = 6
"""By how many powers of two a part that exceeds the range is scaled down."""


def cost(size: int, clients: int) -> tuple[int, int]:
    """Return the bytes up and down of one sum of `size` numbers over all clients."""
    cipher = -(-size // SLOTS) * CIPHER
    return clients * cipher + 8 * size, cipher


def exponents(layout: Layout, vector: np.ndarray, target: float) -> np.ndarray:
    """Return for every leaf the power of two that scales its largest number just below `target`."""
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
    """Return 2^power for every number of the message."""
    sizes = [int(np.prod(shape)) for shape in layout.shapes]
    return np.repeat(np.ldexp(1.0, np.asarray(powers, np.int32)), sizes)


def _signed(run: bytes, serial: int, public: bytes) -> bytes:
    return pack_fields("ckks", run, serial, sha256(public).digest())


class EncryptedSumClient:
    """The client's half: it encrypts its messages; the key holder also decrypts the sums."""

    def __init__(self, number: int, identity: Identity, run: bytes, holder: int) -> None:
        self._me, self._identity, self._run, self._holder = number, identity, run, holder
        self._secret: Any = None
        self._public: Any = None
        self._serial = self._opened = 0
        self._noise = np.random.default_rng()

    def handle(self, phase: str, asked: Arrays, answer: Callable[[], Any]) -> Arrays:
        """Return what goes to the server; `answer` computes the message that is to be hidden."""
        message = answer() if phase == "reply" else None
        try:
            if phase == "reply":
                return self._on_reply(asked, message)
            if phase == "keys" and self._me == self._holder:
                return self._on_keys(asked)
            if phase == "open" and self._me == self._holder:
                return self._on_open(asked)
        except KeyError as missing:
            raise Refused(f"the request {phase!r} of an encrypted sum has no {missing}") from None
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
        if "powers" not in asked:  # The scale of the first sum comes from one client's message.
            return {"powers": exponents(layout, vector, TARGET / int(asked["addends"]))}
        if "public" in asked:
            self._learn(asked)
        if self._public is None:
            raise Refused(f"party {self._me} has no key to encrypt with")
        scaled = vector * _scales(layout, asked["powers"])
        if not np.isfinite(scaled).all():
            raise Refused("a number that is to be added up is not finite")
        largest = RANGE / int(asked["addends"])
        large = [np.max(np.abs(part), initial=0.0) >= largest for part in _leaves(layout, scaled)]
        if any(large):
            return {"large": np.array(large, np.int32)}
        parts = (
            tenseal.ckks_vector(self._public, scaled[at : at + SLOTS]).serialize()
            for at in range(0, len(scaled), SLOTS)
        )
        return {"cipher": as_array(pack_fields(*parts))}

    def _learn(self, asked: Arrays) -> None:
        public, serial = asked["public"].tobytes(), int(asked["serial"])
        said = _signed(self._run, serial, public)
        self._identity.verify(self._holder, said, asked["sign"].tobytes())
        self._public = tenseal.context_from(public)

    def _on_open(self, asked: Arrays) -> Arrays:
        """Decrypt a sum once, with noise that hides the noise of the encryption."""
        number = int(asked["number"])
        if number <= self._opened or self._secret is None:
            raise Refused(
                f"party {self._me} refuses: sum {number} was opened before, or it has no key"
            )
        self._opened = number
        self._check_serial(asked, self._serial)
        parts = unpack_fields(asked["cipher"].tobytes(), int(asked["parts"]))
        plain = np.concatenate(
            [np.array(tenseal.ckks_vector_from(self._secret, part).decrypt()) for part in parts]
            or [np.zeros(0)]
        )
        plain += OPENING_NOISE * self._noise.standard_normal(len(plain))
        return {
            "plain": np.where(np.abs(plain) < 8 * OPENING_NOISE, 0.0, plain)
        }  # Zeros stay zeros.

    def _check_serial(self, asked: Arrays, due: int) -> None:
        if int(asked["serial"]) != due:
            raise Refused(
                f"party {self._me} refuses: key {int(asked['serial'])}, expected is {due}"
            )


class EncryptedSumServer:
    """The server's half: it adds ciphertexts and knows only the public key."""

    def __init__(self, run: bytes, holder: int) -> None:
        self._run, self._holder = run, holder
        self._serial = self._number = self._begun = 0
        self._key: Arrays = {}
        self._context: Any = None
        self._informed: set[int] = set()
        """The clients that have the public key."""
        self._powers: dict[Layout, np.ndarray] = {}

    def gather(self, ask: Ask, asked: Sequence[int], like: Any) -> Gathered:
        """Return the sum over those of `asked` that answer; `like` has the form of a message."""
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
        self._begun, self._informed = self._number, set()
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
        requests = {who: order if who in self._informed else order | self._key for who in asked}
        found = {
            who: said
            for who, said in ask("reply", requests).items()
            if "cipher" in said or said.get("large", powers[:0]).shape == powers.shape
        }
        self._informed |= set(found)
        return found

    def _open(self, ask: Ask, found: list[Arrays], layout: Layout) -> np.ndarray:
        """Add the ciphertexts and ask the key holder to decrypt the sum."""
        count = -(-layout.size // SLOTS)
        total: list[Any] = []
        for said in found:
            parts = [
                tenseal.ckks_vector_from(self._context, part)
                for part in unpack_fields(said["cipher"].tobytes(), count)
            ]
            total = [a + b for a, b in zip(total, parts, strict=True)] if total else parts
        order: Arrays = {
            "serial": np.asarray(self._serial, np.int64),
            "number": np.asarray(self._number, np.int64),
            "parts": np.asarray(count, np.int32),
            "cipher": as_array(pack_fields(*(part.serialize() for part in total))),
        }
        opened = complete(ask("open", {self._holder: order}), "plain")
        plain = np.asarray(self._holds(opened)["plain"], np.float64)
        if plain.shape != (layout.size,):
            raise Refused(f"the key holder sent {plain.shape} numbers, expected are {layout.size}")
        return plain

    def _holds(self, found: Mapping[int, Any]) -> Arrays:
        if self._holder not in found:
            raise Refused(
                f"client {self._holder}, which holds the key (privacy.key_holder), is away"
            )
        held: Arrays = found[self._holder]
        return held
