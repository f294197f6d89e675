"""What a party reveals opens only if a quorum of witnesses was told the same about the sum.

A lying server could tell two parties different things: to some that party v answered, to others
that it did not, and so collect the shares of both of v's secrets. Bonawitz et al. (2017) prevent it
by one more exchange, in which all parties sign the list of live parties and reveal their shares
after they have seen enough signatures on their own list. Here the same condition is part of the
answer itself, so that no exchange is added. Let s be the hash of everything a party was told about
the sum. Party j draws a key r_j, seals what it reveals with it, and splits r_j into shares r_ij,
one for each witness i, of which q reconstruct it. It sends

    the sealed shares,  and for each witness i:  r_ij XOR pad(K_ij, s of j, i, j)

and a witness i sends, for each other party j, pad(K_ij, s of i, i, j). K_ij is known to i and j
alone; the pad is a keyed hash. The server removes the pad of r_ij exactly if i and j were told the
same. A party answers once for each sum, so the server learns the pads for one s only.

The key K_ij comes from signed public keys. A signature would convince everyone of what i said; a
pad convinces j alone, and j is the only one that must be convinced. It costs 2 us instead of 200.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b, sha256
from typing import NamedTuple

import numpy as np

from fedssca.privacy.sums.keys import KEY, Forged, keyed_hash, open_box, pack_fields, seal
from fedssca.privacy.sums.shamir import SHARE, Recovered, recover, split

__all__ = ["Locked", "agreement_key", "lock", "pads", "statement", "unlock"]


class Locked(NamedTuple):
    """What one party reveals, and what opens it."""

    box: bytes
    """The sealed content."""
    locks: bytes
    """For each witness in order: its share of the box's key, under its pad."""


def agreement_key(channel: bytes) -> bytes:
    """The key K_ij of the pads between two parties, from the key of their sealed boxes."""
    return keyed_hash(channel, b"agreement")


def statement(about: bytes, alive: Sequence[int], dead: Sequence[int]) -> bytes:
    """The hash of what a party was told about a sum; `about` names the sum and its members."""
    lists = (np.array(sorted(each), ">u8").tobytes() for each in (alive, dead))
    return sha256(pack_fields("statement", about, *lists)).digest()


def pad(key: bytes, said: bytes, witness: int, owner: int) -> bytes:
    """The pad with which a witness vouches to the owner of a box for the statement `said`."""
    about = witness.to_bytes(8, "big") + owner.to_bytes(8, "big")
    return blake2b(said, digest_size=SHARE, key=key, person=about).digest()


def pads(keys: Mapping[int, bytes], said: bytes, witness: int) -> bytes:
    """The pads of a witness for all of these parties, in their order."""
    return b"".join(pad(key, said, witness, owner) for owner, key in keys.items())


def lock(content: bytes, keys: Mapping[int, bytes], said: bytes, owner: int, quorum: int) -> Locked:
    """Seal a content so that `quorum` of the witnesses with these keys open it together."""
    secret = os.urandom(KEY)
    shares = split(secret, len(keys), quorum)
    locks = (
        _xor(share, pad(key, said, witness, owner))
        for (witness, key), share in zip(keys.items(), shares, strict=True)
    )
    return Locked(seal(secret, content, said), b"".join(locks))


def unlock(locked: Locked, given: Mapping[int, bytes], said: bytes, quorum: int) -> Recovered:
    """Open a box at the server; `given` has the pads by the witness's place among the locks.

    The result is the content, and the places of the witnesses whose pads were wrong.
    """
    shares = {
        place + 1: _xor(locked.locks[SHARE * place : SHARE * (place + 1)], own)
        for place, own in given.items()
        if len(own) == SHARE and SHARE * (place + 1) <= len(locked.locks)
    }
    found = recover(shares, quorum, _opens(locked.box, said))
    if found.secret is None:
        return found
    wrong = tuple(place - 1 for place in found.wrong)
    return Recovered(open_box(found.secret, locked.box, said), wrong)


def _opens(box: bytes, said: bytes) -> Callable[[bytes], bool]:
    def fits(secret: bytes) -> bool:
        try:
            open_box(secret, box, said)
        except Forged:
            return False
        return True

    return fits


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(SHARE)
