"""The server changes the hidden sum of the parties' h_i.

Who attacks: the server, which adds up the masked vectors of parties with columns and sends the sum
to the readers. What it wants: to steer the model, or to learn from how gradients react, by adding a
number of its choice to an entry that it cannot read. Masks do not prevent that: the masked sum plus
1000 is the mask of the sum plus 1000. What stops it: a check that only the parties can make,
because it is a remainder by a prime that they share (`privacy.sums.linear_check`).
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")
from fedssca.privacy.sums.hidden_exchange import ExchangeKeys, relay
from fedssca.privacy.sums.keys import Forged, simulated_identities
from fedssca.privacy.sums.linear_check import LIMBS, LinearCheck
from fedssca.rounds.codec import InvalidMessage
from fedssca.rounds.exchange import SERVER
from tests.privacy.sums.test_hidden_exchange import people, shared

READERS = [0, 1, 2]
ONE = np.uint64(1 << 40)
"""1 in fixed point."""


def test_a_number_added_to_one_entry_is_noticed() -> None:
    hs = list(np.random.default_rng(0).normal(size=(3, 4, 2)))
    ends, sent = shared(hs, READERS)
    for entry in range(8 + LIMBS):
        for amount in (np.uint64(1), 1000 * ONE, np.uint64(1 << 63), np.uint64(2**64 - 1)):
            passed_on = relay(sent, READERS)
            for reader in READERS:
                more = np.zeros(8 + LIMBS, np.uint64)
                more[entry] = amount
                total = passed_on[reader]["h"] + more
                with pytest.raises(Forged, match="not that of every party's share"):
                    ends[reader].receive(SERVER, passed_on[reader] | {"h": total})
    fair = relay(sent, READERS)
    ends[1].receive(SERVER, fair[1])
    np.testing.assert_allclose(sum(ends[1].collect()), sum(hs), atol=3 * 2.0**-40)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=3 + LIMBS, max_size=3 + LIMBS))
def test_no_guess_of_a_matching_check_is_right(added: list[int]) -> None:
    """Whatever is added, check included; only nothing at all is accepted."""
    ends, sent = shared([np.ones((3, 1))] * 3, READERS)
    honest = relay(sent, READERS)[2]
    changed = honest | {"h": honest["h"] + np.array(added, np.uint64)}
    if any(added):
        with pytest.raises(Forged):
            ends[2].receive(SERVER, changed)
    else:
        ends[2].receive(SERVER, changed)


def test_multiples_of_powers_of_two_do_not_slip_through() -> None:
    """A check modulo 2^64 would miss half of all changes by 2^63."""
    check, vector = LinearCheck(bytes(32)), np.arange(5, dtype=np.uint64)
    limbs = check.limbs(vector)
    assert check.holds(vector, limbs, 1)
    for power in range(64):
        wrong = vector.copy()
        wrong[3] += np.uint64(1 << power)
        assert not check.holds(wrong, limbs, 1)


@pytest.mark.parametrize("addends", [1, 2, 5])
def test_the_check_of_a_sum_is_the_sum_of_the_checks(addends: int) -> None:
    rng, check = np.random.default_rng(1), LinearCheck(b"s" * 32)
    parts = [rng.integers(-(2**60), 2**60, 50).view(np.uint64) for _ in range(addends)]
    limbs = sum(check.limbs(part) for part in parts)
    assert check.holds(sum(parts[1:], start=parts[0]), np.asarray(limbs), addends)


def test_the_secret_of_the_checks_comes_sealed_from_a_party() -> None:
    """The server cannot choose it, and a box for another party does not open."""
    made = [ExchangeKeys(i, 3, b"r" * 16, who) for i, who in enumerate(simulated_identities(3))]
    offers = {one.number: one.offer() for one in made}
    for one in made:
        one.agree(offers)
    boxes = made[0].seal_check()
    for box in (boxes[2], bytes(60), boxes[1][:-1] + bytes([boxes[1][-1] ^ 1])):
        with pytest.raises(Forged, match="does not open"):
            made[1].open_check(box)
    with pytest.raises(InvalidMessage, match="no keys of its peers"):
        made[1].exchange("train").send(np.ones(2), READERS)
    assert all(one.agreed for one in people(3))
