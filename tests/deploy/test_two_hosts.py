"""The walk-through of docs/deploy.md between two hosts: two network namespaces and a cable."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.local import write_site_files
from fedssca.run.config import parse
from tests.deploy.loopback import deployed

pytest.importorskip("nvflare", reason="needs the deploy extra: pip install 'fedssca[deploy]'")
pytestmark = pytest.mark.processes

RUN = """
[data]
name = "digits"
[model]
name = "linear"
[algorithm]
name = "sgd"
rounds = 250
[run]
evaluate_every = 10
checkpoint_every = 20
"""
LONGEST = 900.0
"""Seconds that nothing here takes, however busy the machine is."""
ADDRESS = {"fedssca-a": "10.213.77.1", "fedssca-b": "10.213.77.2"}


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Two namespaces, joined; fl-server is the first one's name in both."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("two network namespaces need ip and root")
    first, second = ADDRESS
    commands = [
        f"netns add {first}",
        f"netns add {second}",
        f"link add {first} netns {first} type veth peer name {second} netns {second}",
        *(
            f"-n {name} {what}"
            for name, address in ADDRESS.items()
            for what in (
                f"addr add {address}/24 dev {name}",
                f"link set {name} up",
                "link set lo up",
            )
        ),
    ]
    try:
        for command in commands:
            done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"network namespaces are not permitted here: {done.stderr.strip()}")
        for name in ADDRESS:
            folder = Path("/etc/netns") / name
            folder.mkdir(parents=True, exist_ok=True)
            text = f"127.0.0.1 localhost\n{ADDRESS[first]} fl-server\n"
            (folder / "hosts").write_text(text)
        yield first, second
    finally:
        for name in ADDRESS:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


def test_walk_through_and_a_killed_server(hosts: tuple[str, str], tmp_path: Path) -> None:
    config = parse(RUN, ["data.clients=2"])
    files = write_site_files(config, 2, tmp_path / "data")
    (tmp_path / "run.toml").write_text(RUN)
    fedssca = [sys.executable, "-m", "fedssca", "deploy"]
    there: list[subprocess.Popen[bytes]] = []

    def start(host: str, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["ip", "netns", "exec", host, *fedssca, *words],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        there.append(process)
        return process

    def call(*words: str) -> None:
        subprocess.run([*fedssca, *words], cwd=tmp_path, check=True, capture_output=True)

    first, second = hosts
    call("init", "project.toml", "--server", "fl-server", "--port", "8102", "--sites", "2")
    call("provision", "project.toml", "--out", "kits")
    try:
        server = start(first, "server", "kits/server")
        for number, file in enumerate(files, 1):
            start(second, "site", f"kits/site-{number}", "--data", str(file))
        submit = start(second, "submit", "run.toml", "--out", "run", "--json")
        wait_for(lambda: len(rows(tmp_path / "run")) >= 5, LONGEST, submit)
        server.send_signal(signal.SIGKILL)
        server.wait()
        _, said = submit.communicate(timeout=LONGEST)
        assert submit.returncode == 2
        assert b"deploy submit --resume run" in said
        assert b"Traceback" not in said
        start(first, "server", "kits/server")
        again = start(second, "submit", "--resume", "run", "--json")
        out, said = again.communicate(timeout=LONGEST)
        assert again.returncode == 0, said
        assert json.loads(out)["round"] == 249
    finally:
        for process in there:
            with suppress(OSError):
                process.send_signal(signal.SIGINT)
        for process in there:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    deployed(config, 2, tmp_path / "unbroken")
    ours, theirs = (np.load(tmp_path / n / "model.npz")["w"] for n in ("run", "unbroken/run"))
    assert (ours == theirs).all()


def rows(folder: Path) -> list[Any]:
    file = folder / "metrics.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def wait_for(ready: Callable[[], bool], seconds: float, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.05)
