"""Noise at the sites: their own entropy, the server's account, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca.deploy.server.sites import SitesMissing
from fedssca.deploy.site.stages import Parts, stage_client
from fedssca.errors import UserError
from fedssca.privacy.noise.secret import SecretNoise
from fedssca.rounds.client import for_party
from fedssca.rounds.codec import decode
from fedssca.run.build import build
from fedssca.run.config import parse
from tests.deploy.loopback import deployed

pytest.importorskip("dp_accounting")
pytestmark = pytest.mark.filterwarnings("ignore:privacy. noise hides samples from the server only")
BASE = """
[model]
hidden = 4
[algorithm]
batch = 10
rounds = 5
[problem]
constraint = [{kind = "loss", limit = 1.9}]
[privacy]
clip = 1.0
value_clip = 3.0
noise_multiplier = 2.0
[run]
evaluate_every = 2
checkpoint_every = 2
"""
COLUMNS = [
    "problem.constraint=[]",
    "algorithm.rounds=3",
    "algorithm.rho={a=0.9,alpha=0.6}",
    "algorithm.gamma={a=0.5,alpha=0.9}",
    "algorithm.tau=0.2",
    "data.split=feature",
    "algorithm.batch=50",
]


def test_sites_draw_their_own_noise_and_resuming_is_counted(tmp_path: Path) -> None:
    """Round 3 is asked for twice, before and after a break, at the same point: nothing is alike."""
    config = parse(BASE)
    sent: dict[tuple[str, int], list[np.ndarray]] = {}

    def look(site: str, envelope: bytes, answer: bytes) -> bytes:
        asked = decode(envelope)
        if asked.kind in ("probe/reply", "train/reply"):
            for name, leaf in decode(answer).arrays.items():
                sent.setdefault((f"{asked.kind} {site} {name}", asked.round), []).append(leaf)
        return answer

    def cut(site: str, envelope: bytes, answer: bytes) -> bytes | None:
        gone = decode(envelope).kind == "train/reply" and decode(envelope).round == 4
        return None if gone else look(site, envelope, answer)

    with pytest.raises(SitesMissing, match="site-1, site-2 away"):
        deployed(config, 2, tmp_path, tamper=cut)
    before = (tmp_path / "run" / "config.toml").read_text()
    done, _, _ = deployed(config, 2, tmp_path, tamper=look, resume=True)
    assert (tmp_path / "run" / "config.toml").read_text() == before
    assert done["private_messages"] == 6 + 4 + 2  # probes, rounds, a checkpoint's worth again
    assert done["epsilon"] > 0
    twice = [leaves for (_, t), leaves in sent.items() if t == 3]
    assert len(twice) == 2 * 2  # sites, parts of a message
    for first, second in twice:
        assert not (first == second).any()


def test_parties_with_columns_hide_their_blocks(tmp_path: Path) -> None:
    done, _, _ = deployed(parse(BASE, COLUMNS), 2, tmp_path)
    assert done["private_messages"] == 1  # no row is drawn twice in two rounds
    assert done["sampling"] == "none: the server knows who takes part in a round"
    assert done["private_evaluations"] == 2


def test_rows_that_were_not_counted_are_refused() -> None:
    job = build(parse(BASE, [*COLUMNS, "data.clients=2"]))
    part = {name: np.asarray(column) for name, column in job.clients.client(0).items()}
    site = stage_client("train", job, 0, Parts(part, {}, {}), SecretNoise())
    split = job.problem.vertical
    assert split is not None
    asked = for_party(split, 0, job.algorithm.request(job.algorithm.init(job.problem.start)), None)
    with pytest.raises(UserError, match="not accounted for"):
        site.handle("share", asked | {"indices": np.arange(50)})
