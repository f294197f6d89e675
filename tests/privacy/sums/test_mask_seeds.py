"""The seeds of masks: a party that vanishes gives away those of one sum, and of no other."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("cryptography")
from fedssca.privacy.sums import Refused
from fedssca.privacy.sums.keys import Forged
from fedssca.privacy.sums.mask_seeds import SEALING, opened_seeds, seal_seeds, seed_after
from fedssca.rounds.aggregate import Arrays
from tests.privacy.parties import MaskedSums, inputs


def test_a_seed_belongs_to_one_pair_and_one_sum() -> None:
    channel, other = os.urandom(32), os.urandom(32)
    assert seed_after(channel, 0) == seed_after(channel, 0)
    assert len({seed_after(channel, 0), seed_after(channel, 1), seed_after(other, 0)}) == 3


def test_sealed_seeds_open_with_their_secret_alone() -> None:
    secret, seeds = os.urandom(32), [os.urandom(32) for _ in range(3)]
    sealed = seal_seeds(secret, seeds)
    assert len(sealed) == SEALING + 96
    assert opened_seeds(secret, sealed, 3) == seeds
    with pytest.raises(Forged):
        opened_seeds(os.urandom(32), sealed, 3)
    with pytest.raises(Forged, match="96 bytes of seeds came for 2"):
        opened_seeds(secret, sealed, 2)


def test_every_sum_has_other_seeds_under_another_secret() -> None:
    """So the secret of a party that vanishes in one sum opens nothing of an earlier one."""
    table = MaskedSums(inputs(4))
    used: list[dict[int, bytes]] = []
    sealed: list[bytes] = []

    def keep(phase: str, who: int, said: Arrays) -> Arrays:
        if who == 0 and "seeds" in said:
            used.append(dict(table.clients[0]._seeds))
            sealed.append(said["seeds"].tobytes())
        return said

    table.up = keep
    for _ in range(2):
        table.check(table.gather())
    assert len({seed for seeds in used for seed in seeds.values()}) == 9
    for seeds, box in zip(used, sealed, strict=True):
        assert not any(seed in box for seed in seeds.values())
    table.gone = {"reply": {0}}
    table.check(table.gather())


def test_seeds_that_do_not_open_are_not_taken_for_masks() -> None:
    """A party that sends other seeds than its shares open, and vanishes, stops the sum."""
    table = MaskedSums(inputs(7))

    def other(phase: str, who: int, said: Arrays) -> Arrays:
        return said | {"seeds": said["seeds"] ^ np.uint8(1)} if "seeds" in said else said

    table.up, table.gone = other, {"reply": {6}}
    with pytest.raises(Refused, match="the secret of party 6 do not fit"):
        table.gather()
