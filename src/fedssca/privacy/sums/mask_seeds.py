"""The seeds of the masks that two parties share, and how the server gets those of a lost party.

Two parties have a channel key K_ij in every epoch (`masked_client`), which nobody else knows. The
seed of their masks in one sum is a keyed hash of it,

    s_ij = hash of the number of the sum before in this epoch (0 if there is none) under K_ij.

Before the sum, party i draws a secret r_i, gives its neighbours shares of it, and gives the server
all its seeds s_ij, sealed with r_i. If i vanishes, the neighbours' shares give r_i, and the server
subtracts the masks that i shares with those in the sum. They open no other sum, neither of i,
whose next seeds come from K_ij by the hash, nor of anybody else. In Bonawitz et al. (2017) r_i is
the secret half of a key pair, so that every pair of neighbours computes a key agreement twice in
each sum; here pairs agree on keys once in a run. In return, a party that seals wrong seeds and
vanishes spoils the sum, as one does in either way that answers with wrong numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedssca.privacy.sums.keys import KEY, Forged, keyed_hash, open_box, seal

__all__ = ["SEALING", "opened_seeds", "seal_seeds", "seed_after"]

SEALING = 28
"""The number of bytes that sealing adds."""
ABOUT = b"seeds of masks"


def seed_after(channel: bytes, number: int) -> bytes:
    """The seed that two parties use in the sum that follows sum `number` of an epoch."""
    return keyed_hash(channel, b"mask seed" + number.to_bytes(8, "big"))


def seal_seeds(secret: bytes, seeds: Iterable[bytes]) -> bytes:
    """What a party gives the server: its seeds, one for each neighbour, sealed with its secret."""
    return seal(secret, b"".join(seeds), ABOUT)


def opened_seeds(secret: bytes, sealed: bytes, count: int) -> list[bytes]:
    """The seeds of a party that vanished; Forged unless they belong to this secret."""
    joined = open_box(secret, sealed, ABOUT)
    if len(joined) != KEY * count:
        raise Forged(f"{len(joined)} bytes of seeds came for {count} neighbours")
    return [joined[at : at + KEY] for at in range(0, len(joined), KEY)]
