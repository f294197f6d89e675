"""Noise at the sites: their own entropy, the server's account, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca.config import parse
from fedssca.deploy.crew import Away
from fedssca.wire import decode
from tests.deploy.loopback import deployed

pytest.importorskip("dp_accounting")
pytestmark = [
    pytest.mark.filterwarnings("ignore:epsilon assumes"),
    pytest.mark.filterwarnings("ignore:privacy. noise hides samples from the server only"),
]
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
ROWS = [
    "problem.constraint=[]",
    "algorithm.rounds=3",
    "algorithm.rho={a=0.9,alpha=0.6}",
    "algorithm.gamma={a=0.5,alpha=0.9}",
    "algorithm.tau=0.2",
]
COLUMNS = [*ROWS, "data.split=feature", "algorithm.batch=50"]


@pytest.mark.parametrize("settings", [ROWS, COLUMNS])
def test_sites_hide_what_they_send(settings: list[str], tmp_path: Path) -> None:
    config = parse(BASE, settings)
    ours, _, link = deployed(config, 2, tmp_path / "a")
    other, _, again = deployed(config, 2, tmp_path / "b")
    assert ours["epsilon"] == other["epsilon"] > 0
    assert ours["private_messages"] == (2 if settings == ROWS else 1)  # no row is drawn twice
    sent, same = (
        [
            leaf
            for letter in map(decode, each.answers)
            if letter.kind in ("probe/reply", "train/reply")
            for leaf in letter.arrays.values()
            if leaf.size > 1
        ]
        for each in (link, again)
    )
    assert len(sent) == len(same) > 0
    # The same config and seed, yet no number comes twice: neither batches nor noise are the seed's.
    first, second = (np.concatenate([leaf.ravel() for leaf in leaves]) for leaves in (sent, same))
    assert not (first == second).any()


def test_resuming_is_counted(tmp_path: Path) -> None:
    config = parse(BASE)

    def cut(site: str, letter: bytes, answer: bytes) -> bytes | None:
        gone = decode(letter).kind == "train/reply" and decode(letter).round == 4
        return None if gone else answer

    with pytest.raises(Away, match="site-1, site-2 away"):
        deployed(config, 2, tmp_path, tamper=cut)
    before = (tmp_path / "run" / "config.toml").read_text()
    done, _, _ = deployed(config, 2, tmp_path, resume=True)
    assert (tmp_path / "run" / "config.toml").read_text() == before
    assert done["private_messages"] == 6 + 4 + 2  # probes, rounds, a checkpoint's worth again
    assert done["round"] == 4
