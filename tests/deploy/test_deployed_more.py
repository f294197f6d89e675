"""More rounds for a deployed run: the submitting side asks, the server goes on, rounds add once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.engine import JobOrder
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.job import ServerJob
from fedssca.deploy.submit import Follower, SubmittedRun, follow
from fedssca.errors import UserError
from fedssca.rounds.codec import decode
from fedssca.run.config import parse, render
from fedssca.run.execute import execute, load_config
from fedssca.run.more import longer, with_more_rounds
from fedssca.run.record import RunDirectory
from tests.deploy.loopback import Loopback, Tamper, parties

SITES = 2
CONFIG = """
[data]
name = "breast-cancer"
clients = 2
[model]
name = "linear"
[problem]
objective = "loss"
[[problem.constraint]]
kind = "fnr"
limit = 0.05
[algorithm]
batch = 20
rounds = 12
[run]
evaluate_every = 4
checkpoint_every = 4
"""


class Here:
    """A `Session` with a server in this process."""

    def __init__(self, folder: Path, tamper: Tamper | None = None) -> None:
        self._files = write_site_files(parse(CONFIG), SITES, folder / "data")
        self.runs = folder / "runs"
        self.orders: list[JobOrder] = []
        self._tamper, self._heard = tamper, 0
        self._jobs: dict[str, ServerJob] = {}

    def connected(self, patience: float | None = None) -> dict[str, float]:
        del patience
        self._heard += 1
        return dict.fromkeys(site_names(SITES), float(self._heard))

    def submit(self, order: JobOrder) -> str:
        # An order travels as JSON.
        order = JobOrder(**json.loads(json.dumps(order._asdict())))
        self.orders.append(order)
        job, name = ServerJob(order), str(len(self.orders))
        self._jobs[name] = job
        link = Loopback(parties(self._files), self._tamper)  # a site has one process per job
        arguments = (link, set(site_names(SITES)), self.runs)
        threading.Thread(target=job.run, args=arguments, daemon=True).start()
        return name

    def command(self, job: str, asked: dict[str, Any]) -> dict[str, Any]:
        return self._jobs[job].command(asked)

    def abort(self, job: str) -> None:
        self._jobs[job].command({"taken": True})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedssca.deploy.submit.PAUSE", 0.02)


def new_run(out: Path, *settings: str) -> SubmittedRun:
    run = SubmittedRun.new(site_names(SITES), render(parse(CONFIG, settings)))
    run.write(out)
    return run


def train(session: Here, run: SubmittedRun, out: Path, setting: str = "") -> dict[str, Any]:
    tell = Follower(lambda row, live: None, lambda line: None)
    return follow(session, run, out, bool(setting), tell, 30.0, setting)


def evaluated(out: Path) -> list[int]:
    return [row["round"] for row in RunDirectory(out).rows()]


def test_more_rounds_as_in_the_simulator_though_a_site_is_lost(tmp_path: Path) -> None:
    lost = [17]  # in the additional rounds, after their first checkpoint

    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        envelope = decode(asked)
        if envelope.kind == "train/reply" and envelope.round in lost:
            if site == "site-2":
                lost.clear()
            return None
        return answer

    session, out = Here(tmp_path, tamper), tmp_path / "out"
    run = new_run(out)
    first = train(session, run, out)
    assert (first["rounds"], evaluated(out)) == (12, [0, 4, 8, 11])
    setting = longer(RunDirectory.open(out), 8)
    assert setting == "algorithm.rounds=20"
    more = train(session, run, out, setting)
    assert not lost
    assert [order.longer for order in session.orders] == ["", setting, setting]
    assert (more["rounds"], load_config(out).algorithm.rounds) == (20, 20)
    assert evaluated(out) == [0, 4, 8, 11, 12, 16, 19]
    assert more["feasible"] >= first["feasible"]

    simulated = tmp_path / "simulated"
    execute(parse(CONFIG), simulated)
    longer_run = with_more_rounds(RunDirectory.open(simulated), 8)
    same = execute(longer_run, simulated, resume=True, more=True)
    assert more["objective"] == pytest.approx(same["objective"], rel=1e-4)
    ours, theirs = (np.load(folder / "model.npz")["w"] for folder in (out, simulated))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)

    with pytest.raises(UserError, match=f"fedssca deploy submit --resume {out} --more 3"):
        with_more_rounds(RunDirectory.open(out), 3)


def test_what_cannot_be_continued_stays_as_it_is(tmp_path: Path) -> None:
    session, out = Here(tmp_path), tmp_path / "out"
    run = new_run(out, "run.checkpoint_every=0", "algorithm.rounds=2")
    before = train(session, run, out)
    setting = longer(RunDirectory.open(out), 8)
    with pytest.raises(UserError, match="no state to go on from"):
        train(session, run, out, setting)
    assert RunDirectory.open(out).result() == before
    with pytest.raises(UserError, match="--more 0: it must be"):
        longer(RunDirectory.open(out), 0)
    stranger = new_run(tmp_path / "stranger")
    with pytest.raises(UserError, match="the server does not have this run"):
        train(session, stranger, tmp_path / "stranger", setting)
