"""A rogue site wants to fill another site's memory with letters that come before they are due.

It sends thousands of envelopes of rounds to come, each of the largest size. What stops it: only a
few of one sender wait, older ones of that sender are forgotten, and one that is larger than any
party's message is refused. The letters of honest sites stay.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca.deploy.site.inbox import MOST_WAITING, PeerInbox
from fedssca.rounds.codec import InvalidMessage, decode, encode
from fedssca.run.config import parse
from tests.deploy.loopback import deployed
from tests.deploy.test_faults import BASE

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")


def test_letters_of_one_sender_do_not_pile_up(tmp_path: Path) -> None:
    config = parse(BASE, ["data.split=feature", "algorithm.rounds=2"])
    _, _, link = deployed(config, 2, tmp_path)
    victim, rogue = link.parties["site-1"], link.parties["site-2"]
    outer = decode(link.peer_envelopes[-1])

    def letter(round_: int, h: np.ndarray) -> bytes:
        """What the rogue site seals for its victim, as it may."""
        plain = encode(outer._replace(round=round_, arrays={"h": h}))
        return rogue._preparation.seal("site-1", plain)

    for round_ in range(1000, 2000):
        victim.receive("site-2", letter(round_, np.zeros(3, np.float32)))
    waiting = victim._from_peers._waiting["site-2"]
    assert len(waiting) == MOST_WAITING
    with pytest.raises(InvalidMessage, match="too large"):
        victim.receive("site-2", letter(3000, np.zeros((200_000, 100), np.float32)))


def test_a_flood_takes_no_honest_letter() -> None:
    inbox = PeerInbox[tuple[str, int]]()
    inbox.put("honest", ("train/share", 7), np.ones(1))
    for round_ in range(5000):
        inbox.put("rogue", ("train/share", round_), np.zeros(1))
    assert inbox.take(("train/share", 7)).keys() == {"honest"}
