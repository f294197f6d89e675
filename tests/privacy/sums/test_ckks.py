"""The encrypted sum: right to 1e-6, opened once, by the key holder only, under a signed key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("tenseal")
import tenseal

from fedssca.privacy.sums import Refused, ckks
from fedssca.privacy.sums.ckks import EncryptedSumClient, EncryptedSumServer
from fedssca.privacy.sums.keys import simulated_identities
from fedssca.rounds.aggregate import Arrays

RUN = bytes(16)


class Table:
    def __init__(self, inputs: list[Any], holder: int = 1) -> None:
        identities = simulated_identities(len(inputs))
        self.inputs = inputs
        self.halves = [EncryptedSumClient(i, one, RUN, holder) for i, one in enumerate(identities)]
        self.adder = EncryptedSumServer(RUN, holder)
        self.gone: set[int] = set()
        self.seen: list[tuple[str, int, Arrays, Arrays]] = []
        self.change: Any = lambda phase, who, arrays: arrays

    def ask(self, phase: str, sent: Mapping[int, Arrays]) -> dict[int, Arrays]:
        found = {}
        for who, arrays in sent.items():
            if who not in self.gone:
                asked = self.change(phase, who, arrays)
                found[who] = self.halves[who].handle(phase, asked, lambda w=who: self.inputs[w])
                self.seen.append((phase, who, asked, found[who]))
        return found

    def off(self) -> float:
        """The largest relative error of a leaf of the sum."""
        found = self.adder.gather(self.ask, range(len(self.inputs)), self.inputs[0])
        worst = 0.0
        for name, total in found.total.items():
            exact = sum(self.inputs[who][name] for who in found.who)
            worst = max(worst, np.linalg.norm(total - exact) / max(np.linalg.norm(exact), 1e-300))
        return float(worst)


def messages(count: int = 3, size: int = 5000, scale: float = 1.0) -> list[dict[str, np.ndarray]]:
    """Like gradients: most of them small, some zero, few large, beside numbers of another size."""
    rng = np.random.default_rng(0)
    return [
        {
            "slopes": scale * rng.standard_t(3, size) * (rng.random(size) < 0.5) + 1e-3 * scale,
            "values": np.array([300.0, 0.001 * scale]) + rng.random(2),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_the_relative_error_is_below_a_millionth(scale: float) -> None:
    table = Table(messages(scale=scale))
    assert table.off() < 1e-6
    for message in table.inputs:  # training goes on: numbers shrink, and one grows a lot
        message["slopes"] = message["slopes"] / 100
        message["values"] = message["values"] * 50
    assert table.off() < 1e-6


def test_only_ciphertexts_reach_the_server() -> None:
    table = Table(messages())
    table.off()
    for phase, who, _, said in table.seen:
        if phase == "reply":
            assert set(said) in ({"cipher"}, {"powers"})
        elif phase == "keys":
            public = tenseal.context_from(said["public"].tobytes())
            assert not public.is_private()
        assert who == 1 or phase == "reply"


def test_nothing_stays_nothing() -> None:
    table = Table([{"a": np.zeros(5), "b": np.ones(2)} for _ in range(3)])
    found = table.adder.gather(table.ask, range(3), table.inputs[0])
    assert not found.total["a"].any()
    np.testing.assert_allclose(found.total["b"], 3, rtol=1e-6)


def test_clients_may_vanish_but_not_the_key_holder() -> None:
    table = Table(messages())
    table.gone = {0}
    assert table.off() < 1e-6
    table.gone = {1}
    with pytest.raises(Refused, match=r"holds the key \(privacy.key_holder\), is away"):
        table.off()


def test_a_sum_is_opened_once_and_by_the_key_holder() -> None:
    table = Table(messages())
    table.off()
    (asked,) = [asked for phase, _, asked, _ in table.seen if phase == "open"]
    for who in range(3):
        with pytest.raises(Refused):
            table.halves[who].handle("open", asked, lambda: None)
    with pytest.raises(Refused, match="'keys' is not for it"):
        table.halves[0].handle("keys", asked, lambda: None)


def test_a_key_that_the_holder_did_not_sign_is_refused() -> None:
    table, other = Table(messages()), Table(messages())
    other.off()
    (strange,) = [said for phase, _, _, said in other.seen if phase == "keys"]
    table.change = lambda phase, who, a: a | strange if "public" in a else a
    with pytest.raises(Refused, match="not that of party 1"):
        table.off()


def test_keys_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ckks, "RENEW", 2)
    table = Table(messages(size=10))
    for _ in range(5):
        assert table.off() < 1e-6
    assert sum(phase == "keys" for phase, *_ in table.seen) == 3
