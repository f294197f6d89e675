"""Signatures, agreement, boxes and masks: what fits opens, what was touched does not."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedssca.privacy.sums import keys
from fedssca.privacy.sums.keys import (
    CHUNK,
    Forged,
    KeyPair,
    MaskStream,
    derive,
    open_box,
    pack_fields,
    seal,
    simulated_identities,
)


@pytest.mark.parametrize("alone", [False, True])
def test_signatures_tell_parties_apart(alone: bool) -> None:
    first, second = simulated_identities(2, alone)
    signature = first.sign(b"key")
    second.verify(0, b"key", signature)
    for who, data, bad in [
        (1, b"key", signature),
        (0, b"kez", signature),
        (0, b"key", second.sign(b"key")),
        (2, b"key", signature),
        (0, b"key", b"short"),
    ]:
        with pytest.raises(Forged):
            first.verify(who, data, bad)


def test_a_simulation_verifies_each_signature_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    class Counted:
        @staticmethod
        def from_public_bytes(public: bytes) -> Ed25519PublicKey:
            seen.append(public)
            return Ed25519PublicKey.from_public_bytes(public)

    monkeypatch.setattr(keys, "Ed25519PublicKey", Counted)
    for alone, times in ((False, 1), (True, 3)):
        seen.clear()
        people = simulated_identities(4, alone)
        signature = people[0].sign(b"key")
        for other in people[1:]:
            other.verify(0, b"key", signature)
        assert len(seen) == times


def test_two_parties_agree_on_a_key_for_each_purpose() -> None:
    one, two = KeyPair(), KeyPair()
    assert one.agree(two.public, b"a") == two.agree(one.public, b"a")
    assert one.agree(two.public, b"a") != one.agree(two.public, b"b")
    assert KeyPair(one.secret).public == one.public
    for bad in (bytes(32), b"short"):
        with pytest.raises(Forged, match="not usable"):
            one.agree(bad, b"a")


def test_keys_are_derived_as_the_standard_says() -> None:
    secret, info = os.urandom(32), b"what for"
    assert derive(secret, info) == HKDF(SHA256(), 32, None, info).derive(secret)


def test_contexts_do_not_run_together() -> None:
    assert (
        len(
            {
                pack_fields("ab", "c"),
                pack_fields("a", "bc"),
                pack_fields("abc"),
                pack_fields("a", "b", "c"),
            }
        )
        == 4
    )
    assert pack_fields(b"run", 12) == pack_fields("run", "12")


def test_a_box_opens_as_it_was_sealed_only() -> None:
    key, about = os.urandom(32), pack_fields("run", 1, 2)
    box = seal(key, b"secret", about)
    assert open_box(key, box, about) == b"secret"
    changed = bytes([box[0] ^ 1]) + box[1:]
    for bad in [
        (os.urandom(32), box, about),
        (key, box, pack_fields("run", 2, 1)),
        (key, changed, about),
        (key, box[:-1], about),
        (key, b"", about),
    ]:
        with pytest.raises(Forged):
            open_box(*bad)


@pytest.mark.parametrize("size", [0, 1, 5, CHUNK // 8, CHUNK // 8 + 3])
def test_masks_are_the_key_stream_and_cancel(size: int) -> None:
    masks, seed = MaskStream(), os.urandom(32)
    before = np.arange(size, dtype=np.uint64)
    vector = before.copy()
    masks.add(vector, seed)
    stream = (
        Cipher(algorithms.AES(seed[:16]), modes.CTR(seed[16:])).encryptor().update(bytes(8 * size))
    )
    np.testing.assert_array_equal(vector, before + np.frombuffer(stream, np.uint64))
    MaskStream().add(vector, seed, -1)
    np.testing.assert_array_equal(vector, before)
