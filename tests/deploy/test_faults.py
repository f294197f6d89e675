"""Sites that fall silent or answer nonsense: named, not added, and the run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.server.sites import SitesMissing
from fedssca.errors import UserError
from fedssca.rounds.codec import Envelope, decode, encode
from fedssca.run.config import parse
from tests.deploy.loopback import RUN, Loopback, deployed, parties

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
BASE = """
[data]
name = "digits"
[model]
name = "linear"
[algorithm]
name = "sgd"
batch = 10
rounds = 8
[run]
evaluate_every = 7
checkpoint_every = 2
"""


def changed(answer: bytes, **changes: Any) -> bytes:
    return encode(decode(answer)._replace(**changes))


def not_finite(answer: bytes) -> bytes:
    envelope = decode(answer)
    name = next(name for name, array in envelope.arrays.items() if array.size)
    bad = np.array(envelope.arrays[name])
    bad.flat[0] = np.nan
    return changed(answer, arrays={**envelope.arrays, name: bad})


def wrong_shape(answer: bytes) -> bytes:
    return changed(answer, arrays={n: a[..., :-1] for n, a in decode(answer).arrays.items()})


LIES: dict[str, tuple[Callable[[bytes], Any], str]] = {
    "not finite": (not_finite, "not finite"),
    "wrong shape": (wrong_shape, "shape"),
    "stale round": (lambda answer: changed(answer, round=1), "round 1, due is round 3"),
    "another run": (lambda answer: changed(answer, run=bytes(16)), "another run"),
    "garbage": (lambda answer: b"\x07" * 300, "no message of fedssca"),
    "no bytes": (lambda answer: {"pickle": 1}, "expected bytes"),
}


@pytest.mark.parametrize("lie", LIES)
def test_nonsense_is_named_and_not_added(lie: str, tmp_path: Path) -> None:
    change, why = LIES[lie]

    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        envelope = decode(asked)
        bad = site == "site-2" and envelope.kind == "train/reply" and envelope.round == 3
        return change(answer) if bad else answer

    result, server, _ = deployed(parse(BASE), 3, tmp_path, tamper=tamper)
    assert result["round"] == 7
    (event,) = server.status()["events"]
    assert (event["round"], event["site"]) == (3, "site-2")
    assert "answer not used" in event["event"]
    assert why in event["event"]
    lines = (tmp_path / "run/sites.jsonl").read_text().splitlines()
    shares = [json.loads(line)["share"] for line in lines]
    assert shares[2] == pytest.approx(2 / 3, abs=0.01)
    assert shares[:2] == [1, 1]
    assert shares[3:] == [1] * 4


def test_weights_of_those_who_answer_add_up_to_one(tmp_path: Path) -> None:
    """Two of three sites for good: the same as a run of these two alone."""
    settings = ["data.partition=contiguous", "data.sizes=[400, 400, 400]"]
    config = parse(BASE, settings)

    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        silent = site == "site-3" and decode(asked).kind not in ("terms", "facts", "prepare")
        return None if silent else answer

    three, server, _ = deployed(config, 3, tmp_path / "three", tamper=tamper)
    assert server.sites.live == [0, 1]
    two, _, _ = deployed(parse(BASE, [settings[0], "data.sizes=[400, 400]"]), 2, tmp_path / "two")
    assert three["objective"] == pytest.approx(two["objective"], rel=1e-5)
    assert three["train_accuracy"] == pytest.approx(two["train_accuracy"], abs=1e-6)


def test_a_site_that_keeps_lying_is_dropped(tmp_path: Path) -> None:
    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        bad = site == "site-1" and decode(asked).kind == "train/reply"
        return not_finite(answer) if bad else answer

    result, server, _ = deployed(parse(BASE), 3, tmp_path, tamper=tamper)
    assert result["round"] == 7
    assert server.status()["live"] == ["site-2", "site-3"]
    assert "3 broken answers in a row" in server.status()["events"][-1]["event"]


def test_too_few_sites_end_the_run_and_it_resumes_to_the_same_bits(tmp_path: Path) -> None:
    down = True

    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        return None if down and site != "site-1" and decode(asked).round == 5 else answer

    with pytest.raises(SitesMissing, match=r"site-2, site-3 away, 1 of 3 sites left and 2 needed"):
        deployed(parse(BASE), 3, tmp_path / "broken", tamper=tamper)
    down = False
    deployed(parse(BASE), 3, tmp_path / "broken", tamper=tamper, resume=True)
    deployed(parse(BASE), 3, tmp_path / "whole")
    ours, theirs = (np.load(tmp_path / n / "run/model.npz")["w"] for n in ("broken", "whole"))
    assert (ours == theirs).all()


def test_min_sites_is_heeded(tmp_path: Path) -> None:
    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        return None if site == "site-3" and decode(asked).round == 5 else answer

    with pytest.raises(SitesMissing, match="3 needed"):
        deployed(parse(BASE, ["deploy.min_sites=3"]), 3, tmp_path, tamper=tamper)


def test_limits_on_every_site_need_every_site(tmp_path: Path) -> None:
    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        return None if site == "site-3" and decode(asked).round == 5 else answer

    limited = ["algorithm.name=ssca", 'problem.constraint=[{kind="client_loss", limit=5.0}]']
    with pytest.raises(SitesMissing, match="2 of 3 sites left and 3 needed"):
        deployed(parse(BASE, limited), 3, tmp_path, tamper=tamper)


def test_parties_with_columns_wait_for_each_other(tmp_path: Path) -> None:
    config = parse(BASE, ["data.split=feature"])

    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        return None if site == "site-2" and decode(asked).round == 5 else answer

    with pytest.raises(SitesMissing) as away:
        deployed(config, 2, tmp_path, tamper=tamper)
    assert away.value.sites == ["site-2"]


def test_a_missing_peer_envelope_is_noticed(tmp_path: Path) -> None:
    config = parse(BASE, ["data.split=feature"])
    files = write_site_files(config, 2, tmp_path / "data")
    link = Loopback(parties(files))
    link._poster = lambda sender: lambda envelopes, timeout: None  # type: ignore[method-assign]
    with pytest.raises(UserError, match="no h from"):
        RunServer(RunOrder(config, site_names(2), RUN), link, tmp_path / "run").run()


def test_no_certificates_no_columns(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="site-1: this kit has no certificates"):
        deployed(parse(BASE, ["data.split=feature"]), 2, tmp_path, secure=False)


def test_h_goes_to_peers_only(tmp_path: Path) -> None:
    """What peers send each other is in no envelope to the server."""
    _, _, link = deployed(parse(BASE, ["data.split=feature"]), 2, tmp_path)
    sent = [decode(data).arrays for data in link.peer_envelopes]
    assert all(arrays.keys() == {"sealed"} for arrays in sent)
    boxes = [arrays["sealed"].tobytes() for arrays in sent]
    assert len(boxes) > 14
    assert not any(box in answer for box in boxes for answer in link.answers)


def test_two_runs_do_not_mix(tmp_path: Path) -> None:
    """An envelope of one run at a site of another is refused."""
    config = parse(BASE)
    files = write_site_files(config, 2, tmp_path / "data")
    link = Loopback(parties(files))
    RunServer(RunOrder(config, site_names(2), RUN), link, tmp_path / "run").run()
    stray = encode(Envelope("train/reply", bytes(16), 1, {}))
    (answer,) = link.ask({"site-1": stray}, 1.0).values()
    assert decode(answer.data).kind == "error"
    assert b"another run" in decode(answer.data).arrays["note"].tobytes()


def test_open_collection_is_refused(tmp_path: Path) -> None:
    config = parse(BASE, ["data.split=feature", "data.collection=open"])
    with pytest.raises(UserError, match="exchange"):
        deployed(config, 2, tmp_path)
