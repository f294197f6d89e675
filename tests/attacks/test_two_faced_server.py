"""A lying server tells a client that it is in the sum, and its neighbours that it is not.

Who attacks: the server, alone. What it wants: the message of one client, the victim. It needs both
secrets that hide it: the seed b of the victim's own mask, which clients give away for those in the
sum, and the victim's key, whose shares its neighbours give away for those who vanished. So it tells
the victim "everybody answered" and the neighbours "the victim vanished".

What stops it: nobody sends its own seed, and what a client reveals opens only with the pads of a
quorum of witnesses that were told the same list of live clients (`privacy.sums.agreement`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
from fedssca.privacy.sums import Refused
from fedssca.privacy.sums.agreement import Locked, statement, unlock
from fedssca.privacy.sums.graph import Rules
from fedssca.privacy.sums.keys import as_array, pack_fields, unpack_fields
from fedssca.privacy.sums.masked_client import commitment, digest_of
from fedssca.privacy.sums.shamir import SHARE
from fedssca.rounds.aggregate import Arrays
from tests.privacy.parties import RUN, MaskedSums, inputs

VICTIM = 1


class TwoFaced(MaskedSums):
    """Its clients hear of different live clients: some that the victim answered, some not."""

    def __init__(self, count: int, told_dead: set[int]) -> None:
        super().__init__(inputs(count))
        self.told_dead = told_dead
        self.replies: dict[int, Arrays] = {}
        self.answers: dict[int, Arrays] = {}
        self.refused: set[int] = set()

    def ask(self, phase: str, sent: Mapping[int, Arrays]) -> dict[int, Arrays]:
        if phase != "unmask":
            found = super().ask(phase, sent)
            self.replies = found if phase == "reply" else self.replies
            return found
        count = len(self.inputs)
        for who, arrays in sent.items():
            alive = [i for i in range(count) if i != VICTIM or who not in self.told_dead]
            dead = [i for i in range(count) if i not in alive]
            near = [i for i in range(count) if i != who]
            boxes = dict(
                zip(near, unpack_fields(arrays["boxes"].tobytes(), count - 1), strict=True)
            )
            told = arrays | {
                "alive": np.array(alive, np.int32),
                "dead": np.array(dead, np.int32),
                "boxes": as_array(pack_fields(*(boxes[i] for i in near if i in alive))),
            }
            try:
                self.answers[who] = self.clients[who].handle(phase, told, lambda: None)
            except Refused:
                self.refused.add(who)
        return {}

    def opened(self, told_dead: bool) -> int:
        """How many clients that were told this about the victim have revealed readable shares."""
        count, found = len(self.inputs), 0
        graph = self.rules.graph(range(count))
        alive = [i for i in range(count) if i != VICTIM or not told_dead]
        dead = [VICTIM] if told_dead else []
        about = pack_fields("sum", RUN, 1, 1, *[digest_of(range(count))] * 2)
        said = statement(about, alive, dead)
        for who, own in self.answers.items():
            pads = {}
            for place, witness in enumerate(graph.witnesses_of(who, alive)):
                if witness in self.answers:
                    at = (
                        SHARE * [i for i in alive if i != witness].index(who) if who in alive else 0
                    )
                    pads[place] = self.answers[witness]["pads"].tobytes()[at : at + SHARE]
            locked = Locked(own["box"].tobytes(), own["locks"].tobytes())
            found += unlock(locked, pads, said, graph.needed_for(who)).secret is not None
        return found


def attacked(count: int, told_dead: set[int]) -> TwoFaced:
    table = TwoFaced(count, told_dead)
    with pytest.raises(Refused):
        table.gather()
    assert not table.refused  # Nobody noticed: each list makes sense by itself.
    return table


@pytest.mark.parametrize("count", [4, 10, 32])
def test_the_victim_alone_hears_that_it_is_in_the_sum(count: int) -> None:
    """The attack that needed no colluder: the victim's own seed, and its key from all others."""
    table = attacked(count, set(range(count)) - {VICTIM})
    number, commit = 1, table.replies[VICTIM]["commit"].tobytes()
    sent = b"".join(array.tobytes() for array in table.answers[VICTIM].values())
    seeds = [sent[at : at + 32] for at in range(len(sent) - 31)]
    assert not any(commitment(number, seed) == commit for seed in seeds)
    assert table.opened(told_dead=False) == 0  # what the victim said stays closed


@pytest.mark.parametrize("count", [4, 7, 10, 16])
def test_however_the_clients_are_divided_one_list_opens_at_most(count: int) -> None:
    others = [i for i in range(count) if i != VICTIM]
    for cut in range(count):
        table = attacked(count, set(others[:cut]))
        alive, dead = table.opened(told_dead=False), table.opened(told_dead=True)
        assert not (alive and dead)


def test_as_many_colluders_as_the_rules_name_do_not_help() -> None:
    """With c colluders both lists are short of a quorum; one more, and both could reach it."""
    for count in range(4, 33):
        rules = Rules(RUN, count)
        witnesses, quorum = rules.witnesses(count), rules.quorum(count)
        honest = witnesses - rules.colluders()
        assert all(
            min(half, honest - half) + rules.colluders() < quorum for half in range(honest + 1)
        )


def test_a_client_answers_once() -> None:
    """The server may not try the second list on a client that has answered the first."""
    table = attacked(6, {0, 2})
    again: dict[str, Any] = {"epoch": np.int64(1), "number": np.int64(1)}
    lists = {"alive": np.arange(6), "dead": np.zeros(0, np.int32), "boxes": as_array(b"")}
    for client in table.clients:
        with pytest.raises(Refused, match="opened before"):
            client.handle("unmask", again | lists, lambda: None)
