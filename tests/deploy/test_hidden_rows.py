"""Sites with rows and hidden sums: the same model, nothing in the clear on the server's line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
from fedssca.deploy.server.sites import SitesMissing
from fedssca.errors import UserError
from fedssca.rounds.codec import decode, encode
from fedssca.run.config import parse
from tests.deploy.loopback import Loopback, deployed

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
BASE = """
[data]
name = "digits"
[model]
name = "linear"
[algorithm]
batch = 10
rounds = 6
[run]
evaluate_every = 5
[[problem.constraint]]
kind = "loss"
limit = 2.0
"""
SHORT = """
[data]
name = "digits"
partition = "contiguous"
[model]
name = "linear"
[algorithm]
name = "sgd"
rate = 0.1
batch = 10
rounds = 6
[run]
evaluate_every = 5
"""
HIDDEN = ["privacy.secure_sum=true"]


def ended(folder: Path) -> np.ndarray:
    return np.asarray(np.load(folder / "run/model.npz")["w_last"])


def close(left: Path, right: Path, within: float = 1e-5) -> None:
    a, b = ended(left), ended(right)
    assert np.linalg.norm(a - b) <= within * np.linalg.norm(a)


def silent(site: str, kind: str, round_: int) -> Any:
    """From this envelope on the site is gone."""
    gone: list[bool] = []

    def tamper(name: str, asked: bytes, answer: bytes) -> Any:
        envelope = decode(asked)
        if name == site and envelope.kind == kind and envelope.round >= round_:
            gone.append(True)
        return None if gone and name == site else answer

    return tamper


def kinds(link: Loopback) -> set[str]:
    return {decode(data).kind for data in link.envelopes}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("plain")
    return folder, deployed(parse(BASE), 3, folder)[0]


@pytest.mark.parametrize("hidden", ["privacy.secure_sum=true", "privacy.homomorphic=true"])
def test_hidden_sums_train_and_judge_as_plain_ones(
    hidden: str, plain: tuple[Path, Any], tmp_path: Path
) -> None:
    if "homomorphic" in hidden:
        pytest.importorskip("tenseal")
    result, server, link = deployed(parse(BASE, [hidden]), 3, tmp_path)
    close(plain[0], tmp_path)
    for name in ("objective", "train_accuracy", "test_accuracy", "kkt_residual"):
        assert result[name] == pytest.approx(plain[1][name], rel=1e-4, abs=1e-5)
    assert len(plain[1]["per_client"]) == 3
    assert result["per_client"] == []
    assert result["per_client_hidden"].startswith("hidden by the ")
    assert "client_losses" not in result
    (mine,), (other,) = (each["certificate"]["limits"] for each in (result, plain[1]))
    assert mine["test_interval"] == pytest.approx(other["test_interval"], rel=1e-3)
    assert not server.status()["events"]
    stages = {"probe/reply", "train/reply", "measure/reply", "tally/reply", "slope/reply"}
    assert stages <= kinds(link)
    for data in link.answers:  # of every stage, what a site said is noise or ciphertext
        envelope = decode(data)
        if envelope.kind in stages:
            assert all(name.startswith("sum:") for name in envelope.arrays)
            assert {a.dtype.name for a in envelope.arrays.values()} <= {"uint64", "uint8", "int32"}


@pytest.mark.parametrize("kind", ["train/reply", "sum/unmask"])
def test_a_site_that_vanishes_leaves_a_right_sum(kind: str, tmp_path: Path) -> None:
    """The same model as with plain sums from which the site is missing as often."""
    tamper = silent("site-2", kind, 3)
    _, server, _ = deployed(parse(SHORT, HIDDEN), 4, tmp_path / "a", tamper=tamper)
    assert server.status()["live"] == ["site-1", "site-3", "site-4"]
    missing = 3 if kind == "train/reply" else 4  # masked and sent: still in the sum of round 3
    deployed(parse(SHORT), 4, tmp_path / "b", tamper=silent("site-2", "train/reply", missing))
    close(tmp_path / "a", tmp_path / "b")


def test_below_the_threshold_the_run_waits_for_sites(tmp_path: Path) -> None:
    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        envelope = decode(asked)
        return None if site in ("site-3", "site-4") and envelope.kind == "train/reply" else answer

    config = parse(SHORT, [*HIDDEN, "deploy.min_sites=2"])
    with pytest.raises(SitesMissing, match="2 of 4 parties answer and 3 are needed") as away:
        deployed(config, 4, tmp_path, tamper=tamper)
    assert away.value.sites == ["site-3", "site-4"]


def test_half_an_answer_is_not_added(tmp_path: Path) -> None:
    """A site that answers nonsense to a sum counts as silent; new keys after it."""

    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        envelope = decode(asked)
        if site == "site-1" and envelope.kind == "train/reply" and envelope.round == 2:
            said = decode(answer)
            cut = {n: a for n, a in said.arrays.items() if n != "sum:boxes"}
            return encode(said._replace(arrays=cut))
        return answer

    result, _, link = deployed(parse(SHORT, HIDDEN), 4, tmp_path, tamper=tamper)
    assert result["round"] == 5
    asked = [decode(data) for data in link.envelopes]
    keys = [envelope for envelope in asked if envelope.kind == "sum/keys" and envelope.round]
    assert len(keys) == 2 * 4  # those of the census come before round 1
    lines = (tmp_path / "run/sites.jsonl").read_text().splitlines()
    shares = [json.loads(line)["share"] for line in lines]
    assert [share < 1 for share in shares] == [False, True, False, False, False]


def test_a_number_that_is_too_large_is_told_with_its_site(tmp_path: Path) -> None:
    config = parse(SHORT, [*HIDDEN, "algorithm.rate=1e9", "run.evaluate_every=100"])
    with pytest.raises(UserError, match=r"site-1 \(.*too large for a sum over 3 parties"):
        deployed(config, 3, tmp_path)
