"""The server writes to a site in the name of another one.

Who attacks: the server, which forwards what sites with columns send each other. What it wants: to
change the model through h_i of its own invention, or to use a site as an oracle that multiplies
points of its choice by the site's secret number, so that it can test guessed ids. The engine
encrypts such envelopes, but a receiver could not tell whether it did. What stops it: every envelope
is sealed in the application, with run, step, sender and receiver in the associated data
(`deploy.site.sealed`), and each step of an alignment is answered once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
from fedssca.deploy.site.sealed import SealedPeers
from fedssca.privacy.sums.hidden_exchange import ExchangeKeys
from fedssca.privacy.sums.keys import as_array, seal, simulated_identities
from fedssca.rounds.codec import Envelope, InvalidMessage, decode, encode, note, read_note
from fedssca.run.config import parse
from tests.deploy.loopback import RUN, Loopback, deployed

CONFIG = """
[data]
name = "digits"
split = "feature"
[model]
hidden = 4
[algorithm]
name = "sgd"
rate = 0.1
batch = 50
rounds = 3
"""


class Recording(Loopback):
    """A server that keeps what sites send each other, and forges after every envelope."""

    kept: list[tuple[str, str, bytes]]
    refused: int

    def _poster(self, sender: str) -> Any:
        deliver = super()._poster(sender)

        def post(envelopes: dict[str, bytes], timeout: float) -> None:
            deliver(envelopes, timeout)
            for receiver, data in envelopes.items():
                self.kept.append((sender, receiver, data))
                for forged in self.forgeries(data):
                    with pytest.raises(InvalidMessage):
                        self.parties[receiver].receive(sender, forged)
                    self.refused += 1

        return post

    def forgeries(self, data: bytes) -> list[bytes]:
        outer = decode(data)
        wrong = outer.arrays["sealed"].copy()
        wrong[20] ^= 1
        h = np.full((50, 4), 7.0, np.float32)
        own = seal(bytes(32), encode(outer._replace(arrays={"h": h})), b"")
        return [
            encode(outer._replace(arrays={"h": h})),  # not sealed: it used to be believed
            encode(outer._replace(arrays={"sealed": as_array(own)})),  # sealed by the server
            encode(outer._replace(arrays={"sealed": wrong})),
            encode(outer._replace(round=outer.round + 1)),
            encode(
                outer._replace(kind="measure/share" if "train" in outer.kind else "train/share")
            ),
            encode(outer._replace(run=bytes(16))),
            *[old for _, _, old in self.kept[-4:]],  # replays, of this envelope too
        ]


def test_forged_envelopes_are_refused_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(parse(CONFIG), 3, tmp_path / "fair")
    Recording.kept, Recording.refused = [], 0
    monkeypatch.setattr("tests.deploy.loopback.Loopback", Recording)
    _, _, link = deployed(parse(CONFIG), 3, tmp_path / "forged")
    assert link.refused > 100
    assert not any(b"'h'" in data or b"float32" in data for data in link.peer_envelopes)
    w = [np.load(tmp_path / name / "run/model.npz")["w"] for name in ("fair", "forged")]
    assert w[0].tobytes() == w[1].tobytes()
    # Envelopes of this session are refused in the next one, and by other sites.
    sender, receiver, data = link.kept[-1]
    _, _, later = deployed(parse(CONFIG), 3, tmp_path / "later", run=b"r" * 16)
    for name, party in later.parties.items():
        if name != sender:
            with pytest.raises(InvalidMessage):
                party.receive(sender, data)
    other = next(name for name in link.parties if name not in (sender, receiver))
    with pytest.raises(InvalidMessage, match="not for this site"):
        link.parties[other].receive(sender, data)
    with pytest.raises(InvalidMessage, match="no peer of this site"):
        link.parties[receiver].receive("server", data)


def peers(count: int) -> list[SealedPeers]:
    names = [f"site-{i}" for i in range(count)]
    made = [ExchangeKeys(i, count, RUN, who) for i, who in enumerate(simulated_identities(count))]
    offers = {one.number: one.offer() for one in made}
    for one in made:
        one.agree(offers)
    for peer, box in made[0].seal_check().items():
        made[peer].open_check(box)
    return [SealedPeers(names, one) for one in made]


def test_an_envelope_opens_as_it_was_sealed_only() -> None:
    one, two, three = peers(3)
    envelope = Envelope("train/share", RUN, 4, {"h": np.ones(3)})
    data = one.seal("site-1", encode(envelope))
    found = two.opened("site-0", data)
    with pytest.raises(InvalidMessage, match="came again"):
        two.opened("site-0", data)
    np.testing.assert_array_equal(found.arrays["h"], np.ones(3))
    with pytest.raises(InvalidMessage):
        three.opened("site-0", data)
    with pytest.raises(InvalidMessage):
        two.opened("site-2", data)  # Two parties' keys are their own: no third one sealed it.


def test_a_site_is_no_oracle_for_guessed_ids(tmp_path: Path) -> None:
    """The server has points of guessed ids multiplied, again and again: the first time fails."""
    pytest.importorskip("rbcl")
    from fedssca.privacy.psi.protocol import PsiParty
    from tests.deploy.test_align import CONFIG as ALIGNED
    from tests.deploy.test_align import (
        RunOrder,
        RunServer,
        in_order,
        parties,
        scattered,
        site_files,
        site_names,
    )

    files = site_files(tmp_path / "s", scattered(20), in_order(1))
    link = Loopback(parties(files))
    session: list[str] = []
    hops: list[int] = []

    def oracle(site: str, data: bytes, answer: bytes) -> bytes:
        envelope = decode(data)
        if site == "site-1" and envelope.kind.startswith("align/"):
            session[:] = [read_note(envelope)["session"]]
        if site == "site-1" and envelope.kind == "align/turn":
            hops.append(envelope.round)
            guesses = PsiParty([f"p{i}" for i in range(20)]).encrypt_own()
            arrays = note({"session": session[0]}) | {"body": guesses}
            forged = encode(Envelope("align", envelope.run, envelope.round - 1, arrays))
            with pytest.raises(InvalidMessage, match="not sealed"):
                link.parties["site-1"].receive("site-3", forged)
            again = link.parties["site-1"].handle(data, lambda *_: None)  # the same turn once more
            assert "each is answered once" in read_note(decode(again))["message"]
        return answer

    link._tamper = oracle
    RunServer(RunOrder(ALIGNED, site_names(3), RUN), link, tmp_path / "run").run()
    assert hops == [1, 2]
