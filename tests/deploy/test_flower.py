"""The Flower engine in one process: messages, kits, and one clear line for what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedssca.cli.deploy import app
from fedssca.deploy.engines import chosen_engine, engine_of, flower
from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.schema import ProjectFile
from fedssca.system import pip_install

REASON = "needs the flower extra: pip install 'fedssca[flower]'"


def run(*words: str) -> None:
    CliRunner().invoke(app, words, catch_exceptions=False, standalone_mode=False)


BASE = """
[data]
name = "digits"
clients = 3
[model]
hidden = 4
[algorithm]
batch = 10
rounds = 6
[run]
evaluate_every = 5
precision = "float64"
"""
COLUMNS = [
    "data.split=feature",
    "algorithm.batch=30",
    "problem.constraint=[{kind='loss', limit=1.9}]",
    "algorithm.rho={a=0.9, alpha=0.1}",
    "algorithm.gamma={a=0.5, alpha=0.1}",
    "algorithm.tau=0.2",
    "algorithm.multipliers=exact",
]


@pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
@pytest.mark.parametrize(
    "settings",
    [[], ["privacy.secure_sum=true"], COLUMNS],
    ids=["rows", "secure sum", "columns"],
)
def test_runs_over_flowers_messages_are_simulated_ones(settings: list[str], tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason=REASON)
    from tests.deploy.flower_grid import deployed_over_flower

    config = parse(BASE, settings)
    deployed_over_flower(config, 3, tmp_path)
    execute(config, tmp_path / "simulated")
    a, b = (np.load(tmp_path / name / "model.npz")["w_last"] for name in ("run", "simulated"))
    assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)


def test_garbage_in_a_message_does_no_harm() -> None:
    pytest.importorskip("flwr", reason=REASON)
    from fedssca.deploy.engines.flower.link import GridCalls
    from fedssca.deploy.engines.flower.parties import SiteRuns
    from tests.deploy.flower_grid import grid_of

    class Deaf:
        def handle(self, data: Any, post: Any) -> bytes:
            return b"heard " + bytes(data)

    site = SiteRuns("site-1", Deaf)  # type: ignore[arg-type]
    grid, link = grid_of({"site-1": site})
    calls = GridCalls(grid, {"site-1": 1})
    for junk in ({}, {"data": b"?"}, {"kind": "?", "mail": [b"?"]}):
        said = calls.ask_all([1], junk, 60.0)[1]
        assert said["kind"] == "error"
    assert calls.ask_all([1], {"kind": "hello"}, 60.0)[1]["site"] == "site-1"
    assert link.ask({"site-1": b"this"}, 60.0)["site-1"].data == b"heard this"


def test_kits_hold_their_own_keys_and_only_those(tmp_path: Path) -> None:
    project = ProjectFile("study", "localhost", 9000, ["site-1", "site-2"])
    made = flower.provision(project, tmp_path / "kits")
    root = (made["ca"] / "rootCA.key").read_text()
    for party in ("server", "submit", "site-1", "site-2"):
        texts = [p.read_text(errors="replace") for p in made[party].rglob("*") if p.is_file()]
        assert not any(root in text for text in texts), "the CA's key stays apart"
        secret = sum("PRIVATE KEY" in text for text in texts)
        assert secret == (2 if party.startswith("site") else 1)
        assert made[party].stat().st_mode & 0o077 == 0
    site, submit = flower.open_kit(made["site-1"]), flower.open_kit(made["submit"])
    assert (site.kind, site.name, site.address) == ("site", "site-1", "localhost:9000")
    assert submit.sites == ["site-1", "site-2"]
    nodes = json.loads((made["server"] / "startup" / "flower.json").read_text())["nodes"]
    assert set(nodes) == {"site-1", "site-2"}
    with pytest.raises(UserError, match="is the kit of a site"):
        flower.open_kit(made["site-1"], "server")
    with pytest.raises(UserError, match="is not empty"):
        flower.provision(project, tmp_path / "kits")
    with pytest.raises(UserError, match="is no startup kit"):
        flower.open_kit(tmp_path)


def test_what_is_missing_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no engine 'ray': choose nvflare or flower"):
        chosen_engine("ray")
    monkeypatch.setattr("fedssca.deploy.engines.flower.fits.version", lambda name: "1.20.0")
    with pytest.raises(UserError, match=r"flwr 1\.20\.0 does not fit: .* needs flwr 1\.41\."):
        run("local", "--engine", "flower")
    made = flower.provision(ProjectFile("study", "localhost", 9000, ["site-1"]), tmp_path / "kits")
    with pytest.raises(UserError, match="does not fit"):
        engine_of(made["site-1"])

    def missing(name: str) -> str:
        raise flower.fits.PackageNotFoundError(name)

    monkeypatch.setattr("fedssca.deploy.engines.flower.fits.version", missing)
    with pytest.raises(UserError, match=re.escape(pip_install("flower"))):
        run("local", "--engine", "flower")


def test_a_node_goes_on_when_the_server_refuses_a_sign_of_life() -> None:
    """Flower's own sender would end for good, and the site would count as away for ever."""
    pytest.importorskip("flwr", reason=REASON)
    from fedssca.deploy.engines.flower.node import SteadyHeartbeat

    answers: list[Exception | bool] = [RuntimeError("status 500"), ValueError("status 401"), True]

    def send() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    sender = SteadyHeartbeat(send)
    sender._retry_invoker.wait_function = lambda seconds: None
    sender._retry_invoker.invoke(sender._heartbeat)
    assert not answers
