"""A rogue site sends wrong shares, so that no sum opens any more.

Who attacks: one site among ten. What it wants: to stop the run without being seen. What stops it:
the shares are a Reed-Solomon code, so the right ones are found among the wrong ones. Whoever sends
so many wrong ones that no c parties could have made it look so is dropped for the rest of the job,
and the record of the run says so. Two liars who make an honest site look like one are not believed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
from fedssca.privacy.sums import Refused
from fedssca.privacy.sums.masked_client import MaskedSumClient
from fedssca.privacy.sums.masked_server import liars as named
from fedssca.privacy.sums.shamir import recover, split
from fedssca.rounds.codec import decode, encode
from fedssca.run.config import parse
from tests.deploy.loopback import deployed
from tests.deploy.test_faults import BASE
from tests.privacy.parties import MaskedSums, inputs

SECRET = bytes(range(32))


@pytest.mark.parametrize(("holders", "needed"), [(9, 6), (9, 7), (31, 21), (40, 27)])
def test_wrong_shares_are_found_wherever_they_are(holders: int, needed: int) -> None:
    good = dict(enumerate(split(SECRET, holders, needed), 1))
    for first in range(1, holders + 1):
        liars = {(first + 3 * k - 1) % holders + 1 for k in range((holders - needed) // 2)}
        shares = good | {who: bytes(33) for who in liars}
        found = recover(shares, needed, lambda secret: secret == SECRET)
        assert found.secret == SECRET
        early = liars & set(sorted(shares)[:needed])  # Others were not looked at.
        assert set(found.wrong) == (liars if early else set())


def test_too_many_wrong_shares_give_nothing() -> None:
    shares = dict(enumerate(split(SECRET, 9, 6), 1)) | {who: bytes(33) for who in range(1, 5)}
    assert recover(shares, 6, lambda secret: secret == SECRET).secret is None


@pytest.mark.parametrize("liar", range(10))
@pytest.mark.parametrize("gone", [set(), {4}])
def test_the_sum_opens_and_the_liar_is_named(
    liar: int, gone: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if liar in gone:
        return
    table = MaskedSums(inputs(10))
    honest = MaskedSumClient._locked

    def lying(self: Any, revealed: bytes, *rest: Any) -> Any:
        wrong = bytes(len(revealed)) if self is table.clients[liar] else revealed
        return honest(self, wrong, *rest)

    monkeypatch.setattr(MaskedSumClient, "_locked", lying)
    table.gone = {"reply": gone}
    found = table.gather()
    table.check(found)
    assert found.liars in ((liar,), ())
    if liar < 6:  # its shares were among the first that were tried
        assert found.liars == (liar,)


def test_liars_beyond_the_bound_close_the_sum_and_spoil_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = MaskedSums(inputs(10))
    honest = MaskedSumClient._locked

    def lying(self: Any, revealed: bytes, *rest: Any) -> Any:
        wrong = bytes(len(revealed)) if self in table.clients[:4] else revealed
        return honest(self, wrong, *rest)

    monkeypatch.setattr(MaskedSumClient, "_locked", lying)
    with pytest.raises(Refused, match="do not fit"):
        table.gather()


def test_honest_parties_are_never_named() -> None:
    """Each misfit is of two parties; of those that lie, c = 3 among ten, all may agree on one."""
    framed = [(7, liar) for liar in (0, 1, 2)]
    assert named(framed, 3) == ()
    assert named([*framed, (7, 3)], 3) == (7,)  # four that lie would be more than may
    both_ways = [(4, 0), (0, 4)] * 5
    assert named(both_ways, 1) == ()
    assert named([*both_ways, (0, 5)], 1) == (0,)


@pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
def test_a_site_that_lies_is_dropped_from_the_run(tmp_path: Path) -> None:
    """All sums open, the run ends without the site, and an event says why."""

    def lie(site: str, asked: bytes, answer: bytes) -> bytes:
        request, envelope = decode(asked), decode(answer)
        if (site, request.kind) != ("site-1", "sum/unmask") or not request.round:
            return answer
        wrong = {"sum:pads": envelope.arrays["sum:pads"] ^ 1}
        return encode(envelope._replace(arrays=envelope.arrays | wrong))

    config = parse(BASE, ["privacy.secure_sum=true", "run.evaluate_every=10"])
    done, server, _ = deployed(config, 5, tmp_path, tamper=lie)
    assert done["sites"] == 4
    assert server.status()["live"] == [f"site-{i}" for i in (2, 3, 4, 5)]
    (event,) = server.status()["events"]
    assert event["site"] == "site-1"
    assert event["event"] == "dropped: it sent wrong shares of the secrets of several sites"
