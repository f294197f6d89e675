"""The Flower engine between real processes: a SuperLink, SuperNodes and a ServerApp on loopback.

One deployment serves all tests here.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.run.config import Config, parse, render
from fedssca.run.execute import execute
from fedssca.run.schema import ProjectFile

pytest.importorskip("flwr", reason="needs the flower extra: pip install 'fedssca[flower]'")
psutil = pytest.importorskip("psutil")

from fedssca.deploy.engines import flower  # noqa: E402
from fedssca.deploy.local import LocalDeployment, local_deployment, write_site_files  # noqa: E402
from fedssca.deploy.processes import ending  # noqa: E402
from fedssca.deploy.submit import Follower, SubmittedRun, await_sites, follow  # noqa: E402
from tests.deploy.loopback import deployed  # noqa: E402

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BASE = """
[data]
name = "digits"
clients = 3
[model]
hidden = 8
[algorithm]
batch = 10
rounds = 5
[problem]
constraint = [{kind = "loss", limit = 1.9}]
[run]
evaluate_every = 4
[deploy]
timeout = 60
"""
LONGEST = 600.0
"""Seconds that nothing here takes, however busy the machine is."""
Row = dict[str, Any]


class Bench:
    """A deployment on this machine, and a session to submit runs."""

    def __init__(self, made: LocalDeployment, session: flower.FlowerSession) -> None:
        self.deployment, self.session = made, session
        self.said: list[str] = []

    def run(
        self, config: Config, out: Path, during: Any = None, again: SubmittedRun | None = None
    ) -> Row:
        submitted = again or SubmittedRun.new(self.deployment.sites, render(config))
        submitted.write(out)
        self.said.clear()
        tell = Follower(lambda row, live: during and during(row), self.said.append)
        return follow(self.session, submitted, out, again is not None, tell, LONGEST)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with (
        local_deployment(flower, parse(BASE), 3) as made,
        flower.open_session(made.kits["submit"]) as session,
    ):
        await_sites(session, made.sites, LONGEST)
        yield Bench(made, session)
    place = str(made.kits["server"].path.parent)
    for process in psutil.process_iter(["cmdline"]):
        assert place not in " ".join(process.info["cmdline"] or []), "it was left running"


def alike(left: Path, right: Path) -> None:
    a, b = (np.load(folder / "model.npz")["w_last"] for folder in (left, right))
    assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(a)


def test_a_secure_sum_over_flower_is_a_simulated_one(bench: Bench, tmp_path: Path) -> None:
    config = parse(BASE, ["privacy.secure_sum=true"])
    execute(config, tmp_path / "simulated")
    result = bench.run(config, tmp_path / "deployed")
    alike(tmp_path / "simulated", tmp_path / "deployed")
    assert result["round"] == 4


def test_columns_with_a_label_holder_over_flower(bench: Bench, tmp_path: Path) -> None:
    """What the parties send each other is relayed by the server, sealed."""
    config = parse(BASE, ["data.split=feature", "data.label_holder=0", "algorithm.batch=50"])
    execute(config, tmp_path / "simulated")
    files = bench.deployment.files
    before = {name: file.read_text() for name, file in files.items()}
    made = write_site_files(config, 3, tmp_path / "columns")
    try:
        for file, new in zip(files.values(), made, strict=True):
            text = new.read_text()
            file.write_text(text.replace(f"{new.stem}.npz", str(new.with_suffix(".npz"))))
        bench.run(config, tmp_path / "deployed")
    finally:
        for name, file in files.items():
            file.write_text(before[name])
    alike(tmp_path / "simulated", tmp_path / "deployed")


def test_strangers_and_garbage_are_refused(bench: Bench, tmp_path: Path) -> None:
    import httpx

    host, port = bench.deployment.kits["submit"].address.split(":")
    for junk in (b"\0" * 4096, b"GET / HTTP/1.0\r\n\r\n", os.urandom(4096)):
        with socket.create_connection((host, int(port)), timeout=LONGEST) as line:
            line.sendall(junk)
    project = ProjectFile("local", "localhost", int(port), ["site-1", "site-9"])
    made = flower.provision(project, tmp_path / "kits")
    with (
        flower.open_session(flower.open_kit(made["submit"])) as session,
        pytest.raises(UserError, match="has no certificate of this project"),
    ):
        session.connected()
    root = str(bench.deployment.kits["server"].path / "startup" / "rootCA.pem")
    for name in ("submit", "site-9"):  # they trust the server, but it does not know them
        (made[name] / "startup" / "rootCA.pem").write_bytes(Path(root).read_bytes())
    with (
        flower.open_session(flower.open_kit(made["submit"])) as session,
        pytest.raises(UserError, match="only the submitter of this project may ask"),
    ):
        session.connected()
    stranger = flower.open_kit(made["site-9"])
    process = stranger.start(bench.deployment.files["site-1"])
    with ending({"site-9": process}):
        assert process.wait(LONGEST) != 0
    assert "Failed to initialize the connection" in stranger.log.read_text()
    trusted = httpx.create_ssl_context(verify=root)
    with httpx.Client(verify=trusted, base_url=f"https://{host}:{port}") as client:
        for path in ("/v1/control/list-runs", "/docs", "/v1/fedssca"):
            assert client.post(path, content=os.urandom(64)).status_code == 403
        assert client.post("/v1/fleet/pull-messages", content=b"\xff" * 64).status_code >= 400
        assert client.post("/v1/runtime/acquire-task", content=b"").status_code >= 400
    assert set(bench.session.connected()) == set(bench.deployment.sites)


def test_killed_processes(bench: Bench, tmp_path: Path) -> None:
    """The ServerApp is killed and the run resumed; then a node is killed, and dropped.

    There are many more rounds than those after which it is killed: it must not end before.
    """
    config = parse(BASE, ["algorithm.rounds=81", "run.checkpoint_every=4"])
    deployed(config, 3, tmp_path / "unbroken")
    server = psutil.Process(bench.deployment.processes["server"].pid)
    node = bench.deployment.processes["site-3"]

    def kill_app(row: Row) -> None:
        if row["round"] >= 4:
            apps = [each for each in server.children(recursive=True) if is_app(each)]
            assert apps
            for each in apps:
                each.kill()

    def kill_node(row: Row) -> None:
        if row["round"] >= 8 and node.poll() is None:
            node.kill()
            node.wait()

    out = tmp_path / "broken"
    with pytest.raises(UserError, match="--resume"):
        bench.run(config, out, kill_app)
    result = bench.run(config, out, kill_node, SubmittedRun.read(out))
    assert (result["round"], result["sites"]) == (80, 2)
    assert [event["site"] for event in lines(out / "events.jsonl")] == ["site-3"]
    ours, theirs = (lines(f / "metrics.jsonl") for f in (out, tmp_path / "unbroken/run"))
    assert [row["round"] for row in ours] == list(range(0, 81, 4))
    for row, same in zip(ours[:3], theirs, strict=False):  # until the node was killed
        for name in ("objective", "constraints", "norm_sq", "multipliers", "train_accuracy"):
            assert row[name] == same[name]
    assert ours[-1]["objective"] != theirs[-1]["objective"]


def lines(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def is_app(process: Any) -> bool:
    """Whether this is a ServerApp that has not ended."""
    ended = process.status() == psutil.STATUS_ZOMBIE
    return not ended and "flwr-serverapp" in " ".join(process.cmdline())
