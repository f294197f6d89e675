"""The cryptography that everything here is made of, all of it from `cryptography`.

signatures     Ed25519 in the simulator; a site's certificate in a deployment (`deploy.identity`)
agreement      X25519, then HKDF-SHA256 to a key of 32 bytes for one purpose
sealed boxes   AES-256-GCM; the associated data says what a box is, from whom and for whom
masks          the key stream of AES-128-CTR, read as numbers modulo 2^64
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = [
    "KEY",
    "NONCE",
    "Forged",
    "Identity",
    "KeyPair",
    "Masks",
    "Signing",
    "context",
    "derive",
    "directory_of",
    "open_box",
    "parts_of",
    "seal",
]

KEY = 32
"""Bytes of every key, seed and secret."""
NONCE = 12
CHUNK = 1 << 18
"""Bytes of a key stream that are made at a time: they stay in the cache until they are added."""


class Forged(ValueError):
    """A signature or a box that is not from whom, for whom or about what it should be."""


class Identity(Protocol):
    """Who a party is, to the others."""

    def sign(self, data: bytes) -> bytes:
        """A signature of this party, with all that checking it needs."""

    def verify(self, who: int, data: bytes, signature: bytes) -> None:
        """Raise Forged unless party `who` signed this."""


class Signing:
    """Ed25519 keys, all public ones known to all from the start: the simulator's identities."""

    def __init__(self, secret: Ed25519PrivateKey, directory: Mapping[int, bytes]) -> None:
        self._secret, self._directory = secret, directory

    def sign(self, data: bytes) -> bytes:
        """64 bytes."""
        return self._secret.sign(data)

    def verify(self, who: int, data: bytes, signature: bytes) -> None:
        """Raise Forged unless party `who` of the directory signed this."""
        if who not in self._directory:
            raise Forged(f"there is no party {who}")
        try:
            Ed25519PublicKey.from_public_bytes(self._directory[who]).verify(signature, data)
        except InvalidSignature:
            raise Forged(f"the signature is not that of party {who}") from None


def directory_of(parties: int) -> list[Signing]:
    """Fresh identities of so many parties that know each other."""
    secrets = [Ed25519PrivateKey.generate() for _ in range(parties)]
    known = {who: secret.public_key().public_bytes_raw() for who, secret in enumerate(secrets)}
    return [Signing(secret, known) for secret in secrets]


class KeyPair:
    """One X25519 key pair."""

    def __init__(self, secret: bytes = b"") -> None:
        self.secret = secret or os.urandom(KEY)
        self._private = X25519PrivateKey.from_private_bytes(self.secret)
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, public: bytes, info: bytes) -> bytes:
        """The key that both parties get, for the purpose `info` only."""
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise Forged(f"a public key is not usable: {error}") from None
        return derive(shared, info)


def derive(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA256(secret, info): 32 bytes."""
    return HKDF(SHA256(), KEY, None, info).derive(secret)


def context(*parts: bytes | str | int) -> bytes:
    """All parts in one string from which each can be told: lengths before contents."""
    texts = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"".join(len(text).to_bytes(4, "big") + text for text in texts)


def parts_of(joined: bytes, count: int) -> list[bytes]:
    """The parts that `context` joined, of which there must be `count`."""
    parts, at = [], 0
    while at < len(joined):
        size = int.from_bytes(joined[at : at + 4], "big")
        parts.append(joined[at + 4 : at + 4 + size])
        at += 4 + size
    if at != len(joined) or len(parts) != count:
        raise Forged(f"{len(parts)} parts, some of them cut off, where {count} are due")
    return parts


def seal(key: bytes, plain: bytes, about: bytes) -> bytes:
    """A box that opens with the same key and the same associated data only."""
    nonce = os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plain, about)


def open_box(key: bytes, box: bytes, about: bytes) -> bytes:
    """What is in a box, or Forged."""
    try:
        return AESGCM(key).decrypt(box[:NONCE], box[NONCE:], about)
    except (InvalidTag, ValueError):
        raise Forged("a sealed box does not open: changed, replayed, or for another") from None


class Masks:
    """Adds key streams to vectors of uint64; its buffers are used again, so: one thread each."""

    def __init__(self) -> None:
        self._zeros = memoryview(bytes(CHUNK))
        self._stream = bytearray(CHUNK)
        self._numbers = np.frombuffer(self._stream, "<u8")

    def add(self, vector: np.ndarray, seed: bytes, sign: int = 1) -> None:
        """vector += sign * stream(seed) modulo 2^64, in place. A seed serves one vector only."""
        cipher = Cipher(AES(seed[:16]), CTR(seed[16:KEY])).encryptor()
        step = np.add if sign > 0 else np.subtract
        for begin in range(0, len(vector), CHUNK // 8):
            part = vector[begin : begin + CHUNK // 8]
            cipher.update_into(self._zeros[: 8 * len(part)], self._stream)
            step(part, self._numbers[: len(part)], out=part)
