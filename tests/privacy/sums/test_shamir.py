"""Shares: enough of them give the secret back, fewer or wrong ones do not."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography")
from fedssca.privacy.sums.shamir import PRIME, SHARE, combine, split


@given(st.data())
def test_any_enough_shares_give_the_secret(data: st.DataObject) -> None:
    secret = data.draw(st.binary(min_size=32, max_size=32))
    holders = data.draw(st.integers(1, 20))
    needed = data.draw(st.integers(1, holders))
    shares = split(secret, holders, needed)
    assert {len(share) for share in shares} == {SHARE}
    chosen = data.draw(st.permutations(range(holders)))[:needed]
    assert combine({x + 1: shares[x] for x in chosen}, needed) == secret


def test_fewer_shares_fit_every_secret() -> None:
    """One share short, any secret has a polynomial through the rest: nothing is known."""
    secret, other = os.urandom(32), os.urandom(32)
    shares = split(secret, 3, 3)
    known = {1: int.from_bytes(shares[0], "little"), 2: int.from_bytes(shares[1], "little")}
    zero = int.from_bytes(other, "little")
    # Lagrange through (0, other), (1, .), (2, .) at 3: the third share that would give `other`.
    third = (zero - 3 * known[1] + 3 * known[2]) % PRIME
    forged = {1: shares[0], 2: shares[1], 3: third.to_bytes(SHARE, "little")}
    assert combine(forged, 3) == other


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="4 of 3"):
        split(bytes(32), 3, 4)
    with pytest.raises(ValueError, match="1 shares, 2 are needed"):
        combine({1: bytes(SHARE)}, 2)


@pytest.mark.parametrize("base", [2, 3, 5, 7, 11, 13])
def test_the_modulus_is_a_prime_above_all_secrets(base: int) -> None:
    assert PRIME > 2**256
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    powers = [pow(base, odd * 2**k, PRIME) for k in range(twos)]
    assert powers[0] == 1 or PRIME - 1 in powers
