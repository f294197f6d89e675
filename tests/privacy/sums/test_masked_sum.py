"""The secure sum is the plain sum, whoever vanishes when; and it is refused when it must be."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")
from fedssca.errors import UserError
from fedssca.privacy.sums import Refused, masked_client, masked_server
from fedssca.privacy.sums.keys import (
    Forged,
    KeyPair,
    MaskStream,
    as_array,
    pack_fields,
    simulated_identities,
    unpack_fields,
)
from fedssca.privacy.sums.masked_client import MaskedSumClient
from tests.privacy.parties import PHASES, MaskedSums, inputs


@pytest.mark.parametrize(
    ("count", "away", "phase"),
    [(count, away, phase) for count, away in ((4, 1), (10, 1), (10, 3)) for phase in PHASES]
    + [(3, 1, phase) for phase in PHASES[:-1]]
    + [(100, 30, phase) for phase in PHASES[:-1]]
    + [(100, 10, "unmask"), (100, 0, "reply"), (10, 0, "reply"), (3, 0, "reply")],
)
def test_it_is_the_sum_of_those_who_answer(count: int, away: int, phase: str) -> None:
    table = MaskedSums(inputs(count, 5))
    gone = np.random.default_rng(1).permutation(count)[:away]
    if count < 100 and phase in ("reply", "unmask"):
        table.check(table.gather())  # so that keys of an earlier sum are in use
    table.gone = {phase: set(gone.tolist())}
    found = table.gather()
    table.check(found)
    assert set(found.who) == set(range(count)) - (set() if phase == "unmask" else set(gone))
    if count < 100:
        table.gone = {}
        table.check(table.gather())
        assert len(table.gather().who) == count


def test_a_sum_that_loses_too_many_after_they_answered_is_not_opened() -> None:
    """Each secret needs the shares of two thirds of the neighbours: of three, all others."""
    table = MaskedSums(inputs(3))
    table.gone = {"unmask": {1}}
    with pytest.raises(Refused, match="1 neighbours of party 0 sent their shares and 2 are needed"):
        table.gather()


def test_two_exchanges_a_sum_as_long_as_nobody_vanishes() -> None:
    table = MaskedSums(inputs(4))
    for _ in range(3):
        table.gather()
    assert [p for p, who, _ in table.seen if who == 0] == ["keys", "shares"] + [
        "reply",
        "unmask",
    ] * 3
    table.gone = {"reply": {1}}
    table.gather()
    table.gone, before = {}, len(table.seen)
    table.gather()
    assert [p for p, who, _ in table.seen[before:] if who == 1] == list(PHASES)


def test_messages_of_any_shape() -> None:
    trees = [{"a": np.full((2, 3), i, np.float32), "b": (np.float32(i / 3),)} for i in range(3)]
    found = MaskedSums(trees).gather()
    np.testing.assert_array_equal(found.total["a"], np.full((2, 3), 3, np.float32))
    assert found.total["b"][0] == np.float32(1)
    assert found.total["a"].dtype == np.float32


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_schedule_of_faults_gives_the_sum_or_a_refusal(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 9))
    neighbours = data.draw(st.sampled_from([0, 2, 4]))
    table = MaskedSums(inputs(count, 3), neighbours=neighbours)
    parties = st.sets(st.integers(0, count - 1), max_size=max(1, count // 3))
    for _ in range(3):
        schedule = {phase: data.draw(parties) for phase in PHASES}
        table.gone = schedule
        asked = data.draw(st.permutations(range(count)))
        before = len(table.seen)
        try:
            found = table.gather(asked)
        except Refused:
            continue
        table.check(found)
        assert len(found.who) >= table.rules.least
        replied = {who for phase, who, _ in table.seen[before:] if phase == "reply"}
        assert set(found.who) <= replied


@pytest.mark.parametrize("phase", PHASES)
def test_below_the_threshold_it_refuses(phase: str) -> None:
    table = MaskedSums(inputs(10))
    table.gone = {phase: {0, 1, 2, 3}}
    with pytest.raises(Refused, match="needed"):
        table.gather()
    table.gone = {phase: {0, 1, 2}}
    table.check(table.gather())


def test_what_could_overflow_is_refused_before_it_is_masked() -> None:
    values = inputs(3)
    values[1] = values[1] + 3e6
    with pytest.raises(UserError, match="too large for a sum over 3"):
        MaskedSums(values).gather()


def test_the_threshold_is_what_the_config_says() -> None:
    table = MaskedSums(inputs(10), threshold=0.9)
    table.gone = {"reply": {0, 1}}
    with pytest.raises(Refused, match="8 of 10 parties answer and 9 are needed"):
        table.gather()


# What a server (or who sits on its line) may try: every party refuses.


def lists(alive: list[int], dead: list[int]) -> Any:
    def change(phase: str, who: int, arrays: Any) -> Any:
        if phase != "unmask":
            return arrays
        named = {"alive": np.array(alive, np.int32), "dead": np.array(dead, np.int32)}
        return arrays | named

    return change


LISTS = {
    "both as alive and as dead": ([0, 1, 2, 3], [3]),
    "not the members": ([0, 1, 2], []),
    "this one has 2": ([0, 1], [2, 3]),
    "itself listed as dead": ([1, 2, 3], [0]),
    "the members of this sum": ([0, 1, 2, 3, 3], []),
}


@pytest.mark.parametrize("why", LISTS)
def test_odd_lists_are_refused(why: str) -> None:
    table = MaskedSums(inputs(4))
    table.down = lists(*LISTS[why])
    with pytest.raises(Refused, match=why):
        table.gather()


def recorded(table: MaskedSums) -> list[tuple[str, int, Any]]:
    """Everything that one sum sends to the parties."""
    letters: list[tuple[str, int, Any]] = []

    def keep(phase: str, who: int, arrays: Any) -> Any:
        letters.append((phase, who, arrays))
        return arrays

    table.down = keep
    table.gather()
    table.down = lambda phase, who, arrays: arrays
    return letters


def test_a_sum_is_opened_once() -> None:
    table = MaskedSums(inputs(4))
    letters = recorded(table)
    for _ in range(2):  # at once, and after another sum
        for phase, who, arrays in letters:
            with pytest.raises(Refused):
                table.clients[who].handle(phase, arrays, lambda: table.inputs[0])
        table.gather()


def test_an_older_sum_is_not_opened_after_a_newer_one_was_masked() -> None:
    table = MaskedSums(inputs(4))
    old = next(a for phase, who, a in recorded(table) if phase == "unmask" and who == 0)
    newer = {"epoch": old["epoch"], "number": old["number"] + 1}
    table.clients[0].handle("reply", newer, lambda: table.inputs[0])
    with pytest.raises(Refused, match="not its last sum"):
        table.clients[0].handle("unmask", old, lambda: table.inputs[0])


def boxes_changed(table: MaskedSums, phase: str, change: Any) -> None:
    def swap(which: str, who: int, arrays: Any) -> Any:
        if which != phase or who != 0 or "boxes" not in arrays:
            return arrays
        boxes = unpack_fields(arrays["boxes"].tobytes(), 3)
        return arrays | {"boxes": as_array(pack_fields(*change(boxes)))}

    table.down = swap


@pytest.mark.parametrize("phase", ["reply", "unmask"])
@pytest.mark.parametrize(
    "change",
    [
        lambda boxes: [boxes[1], boxes[0], boxes[2]],  # misrouted
        lambda boxes: [boxes[0][:-1] + bytes([boxes[0][-1] ^ 1]), *boxes[1:]],  # changed
        lambda boxes: boxes[:2],  # left out
        lambda boxes: [b"", *boxes[1:]],
    ],
    ids=["misrouted", "changed", "left out", "empty"],
)
def test_touched_shares_are_refused(phase: str, change: Any) -> None:
    table = MaskedSums(inputs(4))
    boxes_changed(table, phase, change)
    with pytest.raises(Refused, match="party 0"):
        table.gather()


def test_boxes_of_an_earlier_sum_are_refused() -> None:
    table = MaskedSums(inputs(4))
    old: list[bytes] = []

    def replay(phase: str, who: int, arrays: Any) -> Any:
        if phase != "unmask" or who != 0:
            return arrays
        boxes = unpack_fields(arrays["boxes"].tobytes(), 3)
        old.append(boxes[0])
        return arrays | {"boxes": as_array(pack_fields(old[0], *boxes[1:]))}

    table.down = replay
    table.check(table.gather())
    with pytest.raises(Refused, match="does not open"):
        table.gather()


def test_keys_without_a_good_signature_are_refused() -> None:
    """Somebody in the middle who puts own keys in the place of another's."""
    table, stranger = MaskedSums(inputs(4)), simulated_identities(1)[0]
    pair = KeyPair()

    def instead(phase: str, who: int, arrays: Any) -> Any:
        if phase != "keys" or who != 1:
            return arrays
        said = pack_fields("channel", table.rules.run, 1, pair.public)
        own = {"channel": pair.public, "sign": stranger.sign(said)}
        return {name: as_array(data) for name, data in own.items()}

    table.up = instead
    with pytest.raises(Refused, match="not that of party 1"):
        table.gather()


def test_keys_of_later_epochs_need_no_signatures_and_cannot_be_exchanged() -> None:
    """Parties that met before derive new keys; somebody in the middle gains nothing by it."""
    table = MaskedSums(inputs(6))
    table.check(table.gather())
    boxes = [table.clients[0]._channels]
    for client in table.clients:
        client._identity = Unsigned()  # type: ignore[assignment]
    table.gone = {"reply": {5}}
    table.check(table.gather())
    table.gone = {}
    table.check(table.gather(range(5)))
    boxes.append(table.clients[0]._channels)
    assert not {*boxes[0].values()} & {*boxes[1].values()}

    def instead(phase: str, who: int, arrays: Any) -> Any:
        if phase != "keys" or who != 1:
            return arrays
        return arrays | {"channel": as_array(KeyPair().public)}

    table.up, table.gone = instead, {"reply": {4}}
    table.gather(range(5))
    with pytest.raises(Refused, match="a new key of party 1"):
        table.gather(range(4))


class Unsigned:
    """An identity with which nothing can be verified."""

    def verify(self, who: int, data: bytes, signature: bytes) -> None:
        raise Forged(f"a new key of party {who}")


def test_wrong_shares_of_a_party_are_noticed_or_left_out() -> None:
    table = MaskedSums(inputs(7))

    def lie(phase: str, who: int, arrays: Any) -> Any:
        if phase == "unmask" and who in liars:
            return arrays | {"pads": arrays["pads"] ^ 1}
        return arrays

    table.up, liars = lie, {0}
    table.gone = {"reply": {6}}
    found = table.gather()  # 5 others of each, 4 witnesses beside itself needed: one may lie
    table.check(found)
    assert found.liars == (0,)
    liars = {0, 3}
    with pytest.raises(Refused, match="are needed"):
        table.gather()


def test_a_masked_message_of_a_wrong_size_counts_as_none() -> None:
    table = MaskedSums(inputs(4))

    def short(phase: str, who: int, arrays: Any) -> Any:
        cut = phase == "reply" and who == 2
        return arrays | {"masked": arrays["masked"][:-1]} if cut else arrays

    table.up = short
    found = table.gather()
    assert found.who == (0, 1, 3)
    table.check(found)


# What the server sees.


class Pads(MaskStream):
    """Streams with what `shifts` adds to some of them: as good a random stream as any."""

    shifts: ClassVar[dict[bytes, np.ndarray]] = {}
    used: ClassVar[list[bytes]] = []

    def add_to_all(self, vectors: Iterable[np.ndarray], seed: bytes, sign: int = 1) -> None:
        (vector,) = vectors
        super().add_to_all([vector], seed, sign)
        Pads.used.append(seed)
        if seed in self.shifts:
            vector += self.shifts[seed] if sign > 0 else -self.shifts[seed]


@pytest.mark.parametrize("gone", [{}, {"reply": {3}}, {"unmask": {3}}, {"shares": {3}}])
def test_the_server_sees_the_sum_and_noise(gone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other inputs with the same sum look the same to the server, bit by bit.

    For any inputs x and x' with one sum there are pads that turn what the server sees of x into
    what it sees of x': the streams between neighbours, of which the server never gets a seed, are
    shifted by the difference. As streams are random, what it sees says nothing of x but the sum.
    """
    count, size = 5, 4
    here = inputs(count, size)
    there = [x.copy() for x in here]
    there[0] += 1.5
    there[1] -= 2.25
    there[2] += 0.75  # the sum over the three, and so over all who answer, is the same

    def view(values: list[np.ndarray], shifts: dict[bytes, np.ndarray]) -> Any:
        monkeypatch.setattr(os, "urandom", np.random.default_rng(3).bytes)
        for module in (masked_client, masked_server):
            monkeypatch.setattr(module, "MaskStream", Pads)
        monkeypatch.setattr(Pads, "shifts", shifts)
        monkeypatch.setattr(Pads, "used", [])
        table = MaskedSums(values)
        table.clients = [MaskedSumClient(i, _Nobody(), table.rules) for i in range(len(values))]
        table.gone = gone
        found = table.gather()
        return table.seen, found, list(Pads.used)

    seen, found, used = view(here, {})
    seeds = _seeds_between(used, 0, 1), _seeds_between(used, 0, 2)
    move = [
        np.rint((b - a) * 2.0**40).astype(np.int64).view(np.uint64)
        for a, b in zip(here, there, strict=True)
    ]
    # 0 adds both streams; 1 takes out the first, 2 the second.
    shifts = {seeds[0]: move[1], seeds[1]: move[2]}
    other, again, _ = view(there, shifts)
    np.testing.assert_array_equal(found.total, again.total)
    assert len(seen) == len(other)
    for (phase, who, left), (phase2, who2, right) in zip(seen, other, strict=True):
        assert (phase, who, set(left)) == (phase2, who2, set(right))
        for name in left:
            np.testing.assert_array_equal(left[name], right[name], err_msg=f"{phase} {who} {name}")
    unshifted, _, _ = view(there, {})
    assert any(
        (a[2][name] != b[2][name]).any()
        for a, b in zip(seen, unshifted, strict=True)
        for name in a[2]
    )


class _Nobody:
    """Signatures are random too; here they play no part."""

    def sign(self, data: bytes) -> bytes:
        return b"signed"

    def verify(self, who: int, data: bytes, signature: bytes) -> None:
        pass


def _seeds_between(used: list[bytes], first: int, second: int) -> bytes:
    """The seed of a pair: parties mask in their order, first with neighbours, last with b_i.

    With five parties (four where one left before) the streams come as 4 (3) + 1 a party.
    """
    size = next(n for n in (5, 4) if used[n] in used[1:n] or used[n] == used[0])
    row = lambda who: used[size * who : size * who + size - 1]  # noqa: E731
    (shared,) = set(row(first)) & set(row(second))
    return shared
