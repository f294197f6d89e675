"""A rogue site wants to end everybody's run with one answer, or to have another site thrown out.

It answers with notes that are no objects, with shapes that no memory holds, with 10^13 rows, or it
reports that it cannot reach an honest site. What stops it: every answer is checked against a schema
before it is used, a broken one counts against the site that sent it, and nobody is dropped because
another site says so.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.server.sites import SitesMissing
from fedssca.rounds.codec import HEAD, decode, encode, note
from fedssca.run.config import parse
from tests.deploy.loopback import deployed
from tests.deploy.test_faults import BASE

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")


def noted(content: Any) -> Callable[[bytes], bytes]:
    """The answer becomes an error with this note."""
    return lambda answer: encode(decode(answer)._replace(kind="error", arrays=note(content)))


def huge(answer: bytes) -> bytes:
    """One array of shape 0 x 2^31 x 2^31, which needs no byte and cannot be made."""
    head = list(HEAD.unpack(answer[: HEAD.size]))
    kind, head[5] = answer[HEAD.size : HEAD.size + head[2]], 1
    shape = struct.pack("<BBB", 1, 0, 3) + b"a" + struct.pack("<4Q", 0, 2**31, 2**31, 0)
    return HEAD.pack(*head) + kind + shape


ROGUE = {
    "a list": noted([]),
    "a number as message": noted({"message": 7}),
    "no message": noted({}),
    "a peer that is no name": noted({"message": "x", "peer": {}}),
    "blames site-1": noted({"message": "site-1 did not receive its envelope", "peer": "site-1"}),
    "a huge shape": huge,
}


@pytest.mark.parametrize("attack", ROGUE)
def test_the_sender_is_noted_and_the_run_goes_on(attack: str, tmp_path: Path) -> None:
    def tamper(site: str, asked: bytes, answer: bytes) -> bytes:
        due = decode(asked).kind == "train/reply" and decode(asked).round == 3
        return ROGUE[attack](answer) if site == "site-2" and due else answer

    config = parse(BASE, ["algorithm.rounds=4", "run.evaluate_every=3"])
    result, server, _ = deployed(config, 3, tmp_path, tamper=tamper)
    assert result["round"] == 3
    assert server.status()["live"] == ["site-1", "site-2", "site-3"]
    assert {event["site"] for event in server.status()["events"]} == {"site-2"}


def test_ten_trillion_rows_are_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    def tamper(site: str, asked: bytes, answer: bytes) -> bytes:
        if site != "site-2" or decode(asked).kind != "facts":
            return answer
        told = json.loads(decode(answer).arrays["note"].tobytes())
        return encode(decode(answer)._replace(arrays=note(told | {"rows": 10**13})))

    with pytest.raises(SitesMissing) as away:
        deployed(parse(BASE), 3, tmp_path, tamper=tamper)
    assert away.value.sites == ["site-2"]


def test_control_characters_of_a_site_do_not_reach_the_terminal(tmp_path: Path) -> None:
    def tamper(site: str, asked: bytes, answer: bytes) -> bytes:
        rogue = noted({"message": "\x1b[2J\x07 gone" + "x" * 900})
        due = decode(asked).kind == "train/reply" and decode(asked).round == 2
        return rogue(answer) if site == "site-2" and due else answer

    config = parse(BASE, ["algorithm.rounds=3", "run.evaluate_every=2"])
    _, server, _ = deployed(config, 3, tmp_path, tamper=tamper)
    (event,) = server.status()["events"]
    assert event["event"].isprintable()
    assert len(event["event"]) < 600
    assert np.isfinite(np.load(tmp_path / "run/model.npz")["w"]).all()
