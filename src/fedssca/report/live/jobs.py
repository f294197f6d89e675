"""Runs that the page starts: processes of their own that outlive the page, and stop when asked.

A process holds a lock on a file of its own for as long as it lives; the file tells its number. So a
page that was started again finds the runs of the one before, and never signals a stranger.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedssca.errors import UserError

__all__ = ["Jobs"]

MOST = 8
"""Runs at the same time."""
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from fedssca.cli.main import program
program()
"""
"""Ctrl-C is heard even if whoever started the page ignored it."""


class Jobs:
    """Processes by the name of their run; their papers are in `folder`/.page."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._papers = folder, folder / ".page"
        self._children: list[subprocess.Popen[bytes]] = []
        self._stopping: set[str] = set()
        self._one = threading.RLock()
        """To look at a lock is to hold it for a moment: one at a time."""

    def start(self, name: str, toml: str) -> None:
        """A new run of this configuration."""
        file = self._paper(name, "toml")
        self._make_room(name)
        file.write_text(toml, encoding="utf-8")
        self._launch(name, [str(file), "--out", str(self._folder / name)])

    def resume(self, name: str) -> None:
        """Go on with a run from its last checkpoint."""
        self._make_room(name)
        self._launch(name, ["--resume", str(self._folder / name)])

    def stop(self, name: str, force: bool = False) -> None:
        """Ctrl-C; with `force` at once. What is done up to the last checkpoint stays."""
        pid = self._alive(name)
        if pid is None:
            raise UserError(
                f"{name!r} was not started from this page: stop it where it was started"
            )
        os.kill(pid, signal.SIGKILL if force else signal.SIGINT)
        self._stopping.add(name)

    def state(self, name: str) -> str | None:
        """ "going" or "stopping" while its process lives, "ended" after; None: not one of ours."""
        self._children = [child for child in self._children if child.poll() is None]
        if self._alive(name) is not None:
            return "stopping" if name in self._stopping else "going"
        self._stopping.discard(name)
        return "ended" if self.knows(name) else None

    def knows(self, name: str) -> bool:
        """Whether a page started it, now or before."""
        return self._paper(name, "lock").exists()

    def error(self, name: str) -> str | None:
        """The line with which its process ended, if it was one of bad news."""
        with suppress(OSError):
            lines = self._paper(name, "log").read_text(errors="replace").strip().splitlines()
            if lines and not lines[-1].startswith("stopped"):
                return lines[-1].removeprefix("fedssca: ")[:1000]
        return None

    def unborn(self) -> list[str]:
        """Runs that have no folder yet."""
        names = []
        for file in self._papers.glob("*.lock"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                name = str(json.loads(file.read_text())["name"])
                if not (self._folder / name).exists() and self._alive(name) is not None:
                    names.append(name)
        return names

    def _make_room(self, name: str) -> None:
        """Refuse what cannot be; make the folder for papers."""
        if os.name != "posix":
            raise UserError("the page starts runs on Linux and macOS only: use fedssca run")
        if self._alive(name) is not None:
            raise UserError(f"{name!r} is running already")
        if sum(child.poll() is None for child in self._children) >= MOST:
            raise UserError(f"{MOST} runs are going already: wait for one, or stop one")
        try:
            self._papers.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UserError(f"cannot write to {self._folder}: {error.strerror}") from error

    def _launch(self, name: str, arguments: list[str]) -> None:
        with self._one:
            self._launch_alone(name, arguments)

    def _launch_alone(self, name: str, arguments: list[str]) -> None:
        import fcntl

        paper = os.open(self._paper(name, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(paper, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(paper, 0)  # nobody may take the number of an earlier process for this one
            with open(self._paper(name, "log"), "wb") as log:
                child = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, "run", "--quiet", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[paper],
                    start_new_session=True,
                )
            os.pwrite(paper, json.dumps({"name": name, "pid": child.pid}).encode(), 0)
        except BlockingIOError as error:
            raise UserError(f"{name!r} is running already") from error
        finally:
            os.close(paper)
        self._stopping.discard(name)
        self._children.append(child)

    def _alive(self, name: str) -> int | None:
        """The number of the process that holds the lock."""
        with self._one, suppress(OSError, ValueError, KeyError, TypeError, ImportError):
            import fcntl

            with open(self._paper(name, "lock"), "rb+") as paper:
                try:
                    fcntl.flock(paper, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    said: Any = json.loads(paper.read())
                    return int(said["pid"]) if said["name"] == name else None
        return None

    def _paper(self, name: str, ending: str) -> Path:
        """Named by a hash: a run may be called anything."""
        mark = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:24]
        return self._papers / f"{mark}.{ending}"
