"""The cryptographic primitives of the hidden sums, from the package `cryptography` and `hashlib`.

signatures     Ed25519 in the simulator; the certificate of a site in a deployment
key agreement  X25519, then HKDF-SHA256 to a key of 32 bytes for one purpose
further keys   BLAKE2b under a key that was agreed on
sealed boxes   AES-256-GCM; the associated data names the purpose, the sender and the receiver
masks          the key stream of AES-128-CTR, read as integers modulo 2^64
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Protocol

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from fedssca.errors import UserError

__all__ = [
    "KEY",
    "NONCE",
    "Ed25519Identity",
    "Forged",
    "Identity",
    "KeyPair",
    "MaskStream",
    "as_array",
    "derive",
    "keyed_hash",
    "open_box",
    "pack_fields",
    "seal",
    "simulated_identities",
    "unpack_fields",
]

KEY = 32
"""The number of bytes of every key, seed and secret."""
NONCE = 12
"""The number of bytes of a nonce of AES-GCM."""
CHUNK = 1 << 18
"""The number of bytes of a key stream that are made at a time: few enough for the CPU's cache."""


class Forged(UserError):
    """A signature or a sealed box does not belong to the expected sender, receiver or purpose."""


class Identity(Protocol):
    """Signs for one party and verifies the signatures of the others."""

    def sign(self, data: bytes) -> bytes:
        """Return this party's signature, together with everything that verifying it needs."""

    def verify(self, who: int, data: bytes, signature: bytes) -> None:
        """Raise Forged unless party `who` signed `data`."""


class Ed25519Identity:
    """An identity in the simulator: all parties know all public keys from the start."""

    def __init__(
        self,
        secret: Ed25519PrivateKey,
        directory: Mapping[int, bytes],
        verified: set[tuple[int, bytes, bytes]],
    ) -> None:
        """`verified` gains what was verified; it may be shared by parties of one directory."""
        self._secret, self._directory, self._verified = secret, directory, verified

    def sign(self, data: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self._secret.sign(data)

    def verify(self, who: int, data: bytes, signature: bytes) -> None:
        """Raise Forged unless party `who` of the directory signed `data`."""
        if who not in self._directory:
            raise Forged(f"there is no party {who}")
        if (who, data, signature) in self._verified:
            return
        try:
            Ed25519PublicKey.from_public_bytes(self._directory[who]).verify(signature, data)
        except InvalidSignature:
            raise Forged(f"the signature is not that of party {who}") from None
        self._verified.add((who, data, signature))


def simulated_identities(parties: int, alone: bool = False) -> list[Ed25519Identity]:
    """Return new identities for this many parties, each of which knows all public keys.

    A signature that one of them verified is not verified again by the others, except if each
    works `alone`, as sites do.
    """
    secrets = [Ed25519PrivateKey.generate() for _ in range(parties)]
    known = {who: secret.public_key().public_bytes_raw() for who, secret in enumerate(secrets)}
    shared: set[tuple[int, bytes, bytes]] = set()
    return [Ed25519Identity(secret, known, set() if alone else shared) for secret in secrets]


class KeyPair:
    """An X25519 key pair."""

    def __init__(self, secret: bytes = b"") -> None:
        self.secret = secret or os.urandom(KEY)
        self._private = X25519PrivateKey.from_private_bytes(self.secret)
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, public: bytes, info: bytes) -> bytes:
        """Return the key that both parties compute for the purpose `info`."""
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise Forged(f"a public key is not usable: {error}") from None
        return derive(shared, info)


def derive(secret: bytes, info: bytes) -> bytes:
    """Return HKDF-SHA256(secret, info), 32 bytes: RFC 5869 without salt, for one block.

    The package `cryptography` gives the same bytes in five times the time.
    """
    return hmac.digest(hmac.digest(bytes(KEY), secret, "sha256"), info + b"\1", "sha256")


def keyed_hash(key: bytes, about: bytes) -> bytes:
    """Return the key for one purpose: blake2b(about) under the key, in a quarter of HKDF's time."""
    return blake2b(about, digest_size=KEY, key=key).digest()


def pack_fields(*fields: bytes | str | int) -> bytes:
    """Join fields unambiguously: the length of each field precedes its content."""
    parts = []
    for field in fields:
        text = field if isinstance(field, bytes) else str(field).encode()
        parts += [len(text).to_bytes(4, "big"), text]
    return b"".join(parts)


def unpack_fields(joined: bytes, count: int) -> list[bytes]:
    """Return the fields that `pack_fields` joined; raise Forged unless there are `count`."""
    fields, at = [], 0
    while at < len(joined):
        size = int.from_bytes(joined[at : at + 4], "big")
        fields.append(joined[at + 4 : at + 4 + size])
        at += 4 + size
    if at != len(joined) or len(fields) != count:
        raise Forged(f"{len(fields)} fields came, some of them cut off; expected are {count}")
    return fields


def as_array(data: bytes) -> np.ndarray:
    """Return bytes as the array in which they are sent."""
    return np.frombuffer(data, np.uint8)


def seal(key: bytes, plain: bytes, about: bytes) -> bytes:
    """Encrypt: the box opens only with the same key and the same associated data."""
    nonce = os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plain, about)


def open_box(key: bytes, box: bytes, about: bytes) -> bytes:
    """Decrypt a box, or raise Forged."""
    try:
        return AESGCM(key).decrypt(box[:NONCE], box[NONCE:], about)
    except (InvalidTag, ValueError):
        raise Forged(
            "a sealed box does not open: it was changed, replayed, or sealed for another party"
        ) from None


class MaskStream:
    """Adds key streams to vectors of words. It reuses its buffers: each thread needs its own."""

    def __init__(self) -> None:
        self._zeros = memoryview(bytes(CHUNK))
        self._stream = bytearray(CHUNK)
        self._numbers = {size: np.frombuffer(self._stream, f"<u{size}") for size in (2, 4, 8)}

    def add(self, vector: np.ndarray, seed: bytes, sign: int = 1) -> None:
        """Compute vector += sign * stream(seed) modulo 2^64 in place; use a seed only once."""
        self.add_to_all([vector], seed, sign)

    def add_to_all(self, vectors: Iterable[np.ndarray], seed: bytes, sign: int = 1) -> None:
        """The same for several vectors, one after another; each modulo 2 to the bits of a word."""
        cipher = Cipher(AES(seed[:16]), CTR(seed[16:KEY])).encryptor()
        step = np.add if sign > 0 else np.subtract
        for vector in vectors:
            size = vector.dtype.itemsize
            for begin in range(0, len(vector), CHUNK // size):
                part = vector[begin : begin + CHUNK // size]
                cipher.update_into(self._zeros[: size * len(part)], self._stream)
                step(part, self._numbers[size][: len(part)], out=part)
