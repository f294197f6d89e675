"""Real processes, real certificates: sites that are killed in the middle of a secure sum."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the deploy extra: pip install 'fedssca[deploy]'")
pytest.importorskip("cryptography")

from fedssca.deploy.engines import nvflare
from fedssca.deploy.local import local_deployment
from fedssca.deploy.submit import Follower, SubmittedRun, await_sites, follow
from fedssca.rounds.codec import decode
from fedssca.run.config import parse, render
from tests.deploy.loopback import deployed

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
MORTAL = Path(__file__).parent / "mortal"
CONFIG = """
[data]
name = "digits"
[model]
name = "linear"
[algorithm]
name = "sgd"
rate = 0.1
batch = 10
rounds = 21
[run]
evaluate_every = 20
[deploy]
timeout = 60
"""


def test_the_sum_is_right_when_sites_are_killed_in_it(tmp_path: Path) -> None:
    """One before its masked reply, one between that and unmasking: the model of plain sums."""
    deadly = "site-4 train/reply 5,site-3 sum/unmask 10"
    path = os.pathsep.join([str(MORTAL), os.environ.get("PYTHONPATH", "")])
    hidden = parse(CONFIG, ["privacy.secure_sum=true", "privacy.threshold=0.55"])
    environment = {"FEDSSCA_DEADLY": deadly, "PYTHONPATH": path}
    out = tmp_path / "run"
    with (
        local_deployment(nvflare, hidden, 5, environment=environment) as made,
        nvflare.open_session(made.kits["submit"]) as session,
    ):
        await_sites(session, made.sites, 600)
        run = SubmittedRun.new(made.sites, render(hidden))
        run.write(out)
        said: list[str] = []
        result = follow(session, run, out, False, Follower(lambda *_: None, said.append), 600.0)
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [(event["site"], event["round"]) for event in events] == [("site-4", 5), ("site-3", 10)]
    assert (result["round"], result["sites"]) == (20, 3)

    gone = {"site-4": 5, "site-3": 11}  # what site-3 masked in round 10 is in that sum

    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        envelope = decode(asked)
        trained = envelope.kind == "train/reply" and envelope.round >= gone.get(site, 99)
        late = envelope.kind == "measure/reply" and envelope.round > 1 and site in gone
        return None if trained or late else answer

    deployed(parse(CONFIG), 5, tmp_path / "plain", tamper=tamper)
    ours, theirs = (
        np.load(folder / "model.npz")["w_last"] for folder in (out, tmp_path / "plain/run")
    )
    assert np.linalg.norm(ours - theirs) <= 1e-5 * np.linalg.norm(theirs)
