"""The server of the page in a process, requests to it, and waiting for what it does."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from tests.cli_helpers import SMALL, process

LONG = (
    SMALL.replace("rounds = 21", "rounds = 2000000")
    .replace("evaluate_every = 5", "evaluate_every = 500")
    .replace("checkpoint_every = 10", "checkpoint_every = 1000")
)
"""A run that ends only when it is stopped."""


class Answer(NamedTuple):
    code: int
    body: Any


class Server:
    """`fedssca ui` on any free port."""

    def __init__(self, folder: Path, **options: Any) -> None:
        arguments = ["--dir", folder, "--port", 0, "--no-browser", "--json"]
        self._process = process("ui", *arguments, **options)
        assert self._process.stdout is not None
        self.url = str(json.loads(self._process.stdout.readline())["url"])
        self.host = urlsplit(self.url).netloc
        self.token = self.url.partition("token=")[2]

    def ask(self, path: str, said: Any = None, **headers: str) -> Answer:
        """GET, or POST of `said` as JSON; with the token unless headers say otherwise."""
        headers = {"X-Fedssca-Token": self.token} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        body = None if said is None else json.dumps(said)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(self.host, timeout=300)
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        try:
            return Answer(response.status, json.loads(text))
        except ValueError:
            return Answer(response.status, text)

    def state(self, name: str) -> str:
        """What the list says of a run."""
        runs = self.ask("/api/runs").body["runs"]
        return next((run["state"] for run in runs if run["name"] == name), "none")

    def events(self, *names: str) -> Any:
        """The open stream of runs: (event, data), one after another."""
        connection = http.client.HTTPConnection(self.host, timeout=300)
        query = "&".join(f"run={quote(name)}" for name in names)
        connection.request("GET", f"/api/stream?{query}", headers={"X-Fedssca-Token": self.token})
        response = connection.getresponse()
        try:
            kind = ""
            while line := response.readline().decode():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ").strip()
                elif line.startswith("data: "):
                    yield kind, json.loads(line.removeprefix("data: "))
        finally:
            response.close()
            connection.close()

    def end(self) -> int:
        """Ctrl-C; its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        out, err = self._process.communicate(timeout=300)
        assert (out, err) == ("", "")
        return self._process.returncode

    @staticmethod
    def kill(pid: int, lock: Path) -> None:
        """End a run for good, if the process that holds the lock still lives."""
        with open(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                os.kill(pid, signal.SIGKILL)


def wait_for(question: Callable[[], Any], seconds: float = 300.0) -> Any:
    """The first answer that is true."""
    end = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
    return answer


def count_rows(path: Path) -> int:
    file = path / "metrics.jsonl"
    return len(file.read_bytes().splitlines()) if file.exists() else 0
