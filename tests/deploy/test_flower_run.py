"""Flower's own commands: `flwr run` starts the app of `fedssca deploy init` on a real SuperLink.

The sites are `fedssca deploy site`; all speak TLS, and the keys of the sites are registered.
Flower's simulation is started too where Ray is installed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.system import free_port

pytest.importorskip("flwr", reason="needs the flower extra: pip install 'fedssca[flower]'")

from fedssca.deploy.engines.flower.kit import SETTINGS
from fedssca.deploy.local import write_site_files
from fedssca.deploy.processes import ending

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:convergence is not guaranteed"),
]
RUN = """
[data]
name = "digits"
clients = 2
[model]
hidden = 4
[problem]
constraint = [{kind = "loss", limit = 1.9}]
[algorithm]
batch = 10
rounds = 2
rho = {a = 0.9, alpha = 0.1}
gamma = {a = 0.5, alpha = 0.1}
tau = 0.2
[run]
evaluate_every = 1
"""
LONGEST = 600.0
"""Seconds that nothing here takes, however busy the machine is."""


class Commands:
    """Flower's commands and ours in a folder, with a folder for Flower of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running = folder, dict[str, subprocess.Popen[bytes]]()
        self._bin = Path(sys.executable).parent
        path = os.pathsep.join([str(self._bin), os.environ["PATH"]])
        own = {"PATH": path, "FLWR_HOME": str(folder / "flwr"), "RAY_USAGE_STATS_ENABLED": "0"}
        ports = {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port())}
        self._environment = os.environ | SETTINGS | own | ports

    def run(self, *words: object) -> str:
        """The output of a command that ends by itself."""
        done = subprocess.run(
            [str(self._bin / str(words[0])), *map(str, words[1:])],
            env=self._environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, name: str, *words: object) -> None:
        """Start a command that runs until the test ends."""
        with open(self.folder / f"{name}.log", "wb") as log:
            self.running[name] = subprocess.Popen(
                [str(self._bin / str(words[0])), *map(str, words[1:])],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path)
    (tmp_path / "run.toml").write_text(RUN)
    with ending(made.running):
        yield made


def listens(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port), 1.0).close()
    except OSError:
        return False
    return True


def alike(folder: Path, told: str) -> None:
    """The run that Flower's log tells of is the simulated one."""
    assert "the run is complete" in told, told
    (made,) = (folder / "app" / "runs").iterdir()
    execute(parse(RUN), folder / "simulated")
    a, b = (np.load(f / "model.npz")["w_last"] for f in (made, folder / "simulated"))
    assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b)
    assert json.loads((made / "result.json").read_text())["sites"] == 2


def test_flwr_run_on_a_superlink_with_tls(commands: Commands) -> None:
    folder, port = commands.folder, free_port()
    server: list[Any] = ["--server", "localhost", "--port", port]
    commands.run(
        "fedssca", "deploy", "init", "app", "--engine", "flower", *server, "--run", "run.toml"
    )
    commands.run("fedssca", "deploy", "provision", "app/project.toml", "--engine", "flower")
    files_of_sites = write_site_files(parse(RUN), 2, folder / "data")
    kit = folder / "kits/server/startup"
    files = ["--ssl-ca-certfile", kit / "rootCA.pem", "--ssl-certfile", kit / "party.crt"]
    files += ["--ssl-keyfile", kit / "party.key", "--enable-supernode-auth"]
    commands.start("link", "flower-superlink", "--port", port, *files)
    (folder / "flwr").mkdir(exist_ok=True)
    (folder / "flwr/config.toml").write_text(
        f'[superlink]\ndefault = "study"\n[superlink.study]\naddress = "localhost:{port}"\n'
        f'root-certificates = "{folder}/kits/submit/startup/rootCA.pem"\n'
    )
    until = time.monotonic() + LONGEST
    while not listens(port):
        assert time.monotonic() < until
        time.sleep(0.1)
    for site in ("site-1", "site-2"):
        commands.run("flwr", "supernode", "register", f"kits/{site}/startup/node.pub", "study")
    for site, file in zip(("site-1", "site-2"), files_of_sites, strict=True):
        commands.start(site, "fedssca", "deploy", "site", f"kits/{site}", "--data", file)
    alike(folder, commands.run("flwr", "run", "app", "study", "--stream"))


@pytest.mark.skipif(not find_spec("ray"), reason="needs Ray: fedssca[flower-simulation]")
def test_flwr_run_in_flowers_simulation(commands: Commands) -> None:
    folder, port = commands.folder, free_port()
    commands.run("fedssca", "deploy", "init", "app", "--engine", "flower", "--run", "run.toml")
    commands.start("link", "flower-superlink", "--insecure", "--simulation", "--port", port)
    (folder / "flwr").mkdir(exist_ok=True)
    (folder / "flwr/config.toml").write_text(
        f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    until = time.monotonic() + LONGEST
    while not listens(port):
        assert time.monotonic() < until
        time.sleep(0.1)
    told = commands.run("flwr", "run", "app", "here", "--stream")
    alike(folder, told)
