"""The Flower app of `fedssca deploy init --engine flower`: its files, and its two apps."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedssca.cli.deploy import app
from fedssca.deploy.engines import flower
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import read_project
from fedssca.errors import UserError
from fedssca.run.config import parse, read
from fedssca.run.execute import execute
from fedssca.run.schema import ProjectFile

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
REASON = "needs the flower extra: pip install 'fedssca[flower]'"
pytest.importorskip("flwr", reason=REASON)

from flwr.app import Context, Message, RecordDict  # noqa: E402
from flwr.cli.build import build_fab_from_disk  # noqa: E402
from flwr.cli.config_utils import load_and_validate  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402

from fedssca.deploy.engines.flower.app import client_app, server_app  # noqa: E402
from fedssca.deploy.engines.flower.app.client import host_of  # noqa: E402
from tests.deploy.flower_grid import SiteGrid  # noqa: E402

RUN = """
[data]
name = "digits"
[model]
hidden = 4
[algorithm]
batch = 10
rounds = 3
[problem]
constraint = [{kind = "loss", limit = 1.9}]
[privacy]
secure_sum = true
[run]
evaluate_every = 2
precision = "float64"
"""


def init(*words: object) -> None:
    given = ["init", *map(str, words)]
    CliRunner().invoke(app, given, catch_exceptions=False, standalone_mode=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flower")
    (folder / "mine.toml").write_text(RUN)
    init(folder / "app", "--engine", "flower", "--sites", 2, "--run", folder / "mine.toml")
    return folder / "app"


class NodeGrid(SiteGrid):
    """Nodes of a simulation, each of which passes its messages to a ClientApp."""

    def __init__(self, client: ClientApp, count: int) -> None:
        super().__init__({})
        self._client, self._count = client, count

    def get_node_ids(self) -> Iterable[int]:
        return range(1, self._count + 1)

    def _answer(self, message: Message) -> None:
        node = message.metadata.dst_node_id
        own = {"partition-id": node - 1, "num-partitions": self._count}
        context = Context(7, node, own, RecordDict(), {})
        self._replies[message.metadata.message_id] = self._client(message, context)


def hosts_have_ended(owner: int) -> None:
    """Return when the processes that keep parties for this process have ended."""
    import psutil

    def mine(process: Any) -> bool:
        words = process.info["cmdline"] or []
        return any(f'"owner": {owner}' in word for word in words)

    psutil.wait_procs([each for each in psutil.process_iter(["cmdline"]) if mine(each)])


def settings_of(folder: Path) -> dict[str, Any]:
    flower = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]
    return dict(flower["app"]["config"])


def test_flower_takes_the_app(made: Path) -> None:
    config, warnings = load_and_validate(made / "pyproject.toml")
    assert warnings == []
    assert config["tool"]["flwr"]["app"]["components"]["serverapp"] == "fedssca_app.server_app:app"
    fab = build_fab_from_disk(made)
    for name in (b"run.toml", b"project.toml", b"fedssca_app/client_app.py"):
        assert name in fab
    assert read_project(made / "project.toml").sites == ["site-1", "site-2"]
    assert read(made / "run.toml") == RUN
    assert "FLWR_TELEMETRY_ENABLED=0" in (made / "flower.env").read_text()


def test_a_run_of_the_app_is_a_simulated_one_and_resumes(made: Path, tmp_path: Path) -> None:
    """Messages pass through both apps and through the process that keeps the parties."""
    grid = NodeGrid(client_app(), 3)
    server = server_app(made)

    def run(**settings: Any) -> None:
        given = settings_of(made) | {"out": str(tmp_path / "runs"), **settings}
        server(grid, Context(7, 0, {}, RecordDict(), given))

    run(set="algorithm.batch=12")
    hosts_have_ended(os.getppid())
    (folder,) = (tmp_path / "runs").iterdir()
    config = parse(RUN, ["algorithm.batch=12", "data.clients=3"])
    execute(config, tmp_path / "simulated")
    ours, theirs = (np.load(f / "model.npz")["w_last"] for f in (folder, tmp_path / "simulated"))
    assert np.linalg.norm(ours - theirs) <= 1e-6 * np.linalg.norm(theirs)

    (folder / "result.json").unlink()  # as if it had been killed after its last checkpoint
    run(resume=folder.name)
    hosts_have_ended(os.getppid())
    assert (np.load(folder / "model.npz")["w_last"] == ours).all()


def test_the_party_of_a_supernode_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = flower.provision(ProjectFile("study", "localhost", 9000, ["site-1"]), tmp_path / "kits")
    (file,) = write_site_files(parse(RUN, ["data.clients=1"]), 1, tmp_path / "data")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as node:
        monkeypatch.setattr(os, "getppid", lambda: node.pid)
        own = {"kit": str(made["site-1"]), "data": str(file)}
        host = host_of(Context(7, 1, own, RecordDict(), {}))
        assert host.reply(7, {"kind": "hello"}) == {"kind": "hello", "site": "site-1"}
        assert host.reply(7, {"kind": "?"})["kind"] == "error"
        assert host.reply(7, {"kind": "bye"}) == {"kind": "bye"}
        node.communicate(b"\n")
    hosts_have_ended(node.pid)
    assert not host.place.exists()


def test_what_is_wrong_is_one_clear_line(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="exists already: choose another name"):
        init(made, "--engine", "flower")
    with pytest.raises(UserError, match="--run is part of an app: add --engine flower"):
        init(tmp_path / "project.toml", "--run", made / "run.toml")

    def context(**node: Any) -> Context:
        return Context(7, 1, node, RecordDict(), {})

    with pytest.raises(UserError, match="this SuperNode has no data: start it with --node-config"):
        host_of(context())
    with pytest.raises(UserError, match="needs both: kit, a folder, and data"):
        host_of(context(kit="kits/site-1"))
    with pytest.raises(UserError, match="is no startup kit"):
        host_of(context(kit=str(tmp_path), data="site.toml"))
    with monkeypatch.context() as other:
        other.setattr("fedssca.deploy.engines.flower.fits.version", lambda name: "1.30.0")
        with pytest.raises(UserError, match=r"flwr 1\.30\.0 does not fit: .* needs flwr 1\.41\."):
            client_app()
    empty = NodeGrid(client_app(), 0)

    def served(**settings: Any) -> None:
        given = settings_of(made) | settings
        server_app(made)(empty, Context(7, 0, {}, RecordDict(), given))

    with pytest.raises(UserError, match="site-1, site-2 not connected: start a SuperNode there"):
        served(wait=0)
    with pytest.raises(UserError, match="resume = 'latest': give the name of a run directory in"):
        served(resume="latest")
    with pytest.raises(UserError, match="holds no run"):
        served(resume="0" * 32)
