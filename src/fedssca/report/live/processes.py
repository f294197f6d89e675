"""Runs that the page starts: each is a process of its own, which goes on when the page ends.

A process holds a lock on a file for as long as it lives, and the file contains its process id. So a
page that is started later finds the runs of an earlier page, and a signal can never reach another
process that happens to have the same id.
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

from fedssca.errors import ERROR_FILE, UserError, read_error

__all__ = ["RunProcesses"]

MOST = 8
"""The largest number of runs at the same time."""


class RunProcesses:
    """Processes by the name of their run. Their locks, logs and errors are in `folder`/.page."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._records = folder, folder / ".page"
        self._children: list[subprocess.Popen[bytes]] = []
        self._stopping: set[str] = set()
        self._mutex = threading.RLock()
        """Testing a lock means holding it for a moment, so one thread at a time does that."""

    def start(self, name: str, toml: str) -> None:
        """Start a new run with this configuration."""
        file = self._record(name, "toml")
        self._prepare(name)
        file.write_text(toml, encoding="utf-8")
        self._launch(name, ["run", str(file), "--out", str(self._folder / name)])

    def resume(self, name: str, kit: Path | None = None) -> None:
        """Continue a run from its last checkpoint; a deployed one with the submitter's `kit`."""
        self._prepare(name)
        command = ["run"] if kit is None else ["deploy", "submit", "--kit", str(kit)]
        self._launch(name, [*command, "--resume", str(self._folder / name)])

    def stop(self, name: str, force: bool = False) -> None:
        """Stop a run as Ctrl-C does, or kill it. Its last checkpoint can be resumed."""
        pid = self._pid(name)
        if pid is None:
            raise UserError(
                f"{name!r} was not started from this page: stop it where it was started"
            )
        os.kill(pid, signal.SIGKILL if force else signal.SIGINT)
        self._stopping.add(name)

    def state(self, name: str) -> str | None:
        """ "running", "stopping" or "ended"; None if no page has started this run."""
        self._children = [child for child in self._children if child.poll() is None]
        if self._pid(name) is not None:
            return "stopping" if name in self._stopping else "running"
        self._stopping.discard(name)
        return "ended" if self.started(name) else None

    def started(self, name: str) -> bool:
        """Whether this page or an earlier one has started the run."""
        return self._record(name, "lock").exists()

    def error(self, name: str) -> UserError | None:
        """The error with which the process ended; None if it ended without one."""
        return read_error(self._record(name, "error"))

    def without_folder(self) -> dict[str, float]:
        """Runs that were started and have no run directory, with the time of their start.

        They are about to create it, or they failed before they could.
        """
        found = {}
        for file in self._records.glob("*.lock"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                name = str(json.loads(file.read_text())["name"])
                if not (self._folder / name / "config.toml").exists():
                    found[name] = file.stat().st_mtime
        return found

    def settings(self, name: str) -> str | None:
        """The configuration with which a run was started from a page, as TOML."""
        with suppress(OSError, UnicodeDecodeError):
            return self._record(name, "toml").read_text(encoding="utf-8")
        return None

    def forget(self, name: str) -> None:
        """Remove what is kept of a run that failed before it had a run directory."""
        if self._pid(name) is not None:
            raise UserError(f"{name!r} is running: stop it first")
        for ending in ("toml", "log", "error", "lock"):
            self._record(name, ending).unlink(missing_ok=True)

    def _prepare(self, name: str) -> None:
        """Check that the run may be started, and create the folder for the records."""
        if os.name != "posix":
            raise UserError("the page starts runs on Linux and macOS only: use fedssca run")
        if self._pid(name) is not None:
            raise UserError(f"{name!r} is running already")
        if sum(child.poll() is None for child in self._children) >= MOST:
            raise UserError(f"{MOST} runs are running already: wait for one to end, or stop one")
        try:
            self._records.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UserError(f"cannot write to {self._folder}: {error.strerror}") from error

    def _launch(self, name: str, arguments: list[str]) -> None:
        """Start the process. It inherits the lock file, and with it the lock."""
        import fcntl

        with self._mutex:
            lock = os.open(self._record(name, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(lock, 0)  # the id of an earlier process must not be read as this one's
                error_file = self._record(name, "error")
                error_file.unlink(missing_ok=True)
                with open(self._record(name, "log"), "wb") as log:
                    child = subprocess.Popen(
                        [sys.executable, "-m", "fedssca", *arguments, "--quiet"],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=os.environ | {ERROR_FILE: str(error_file)},
                        pass_fds=[lock],
                        start_new_session=True,
                    )
                os.pwrite(lock, json.dumps({"name": name, "pid": child.pid}).encode(), 0)
            except BlockingIOError as error:
                raise UserError(f"{name!r} is running already") from error
            finally:
                os.close(lock)
            self._stopping.discard(name)
            self._children.append(child)

    def _pid(self, name: str) -> int | None:
        """The id of the process that holds the lock of this run; None if there is none."""
        with self._mutex, suppress(OSError, ValueError, KeyError, TypeError, ImportError):
            import fcntl

            with open(self._record(name, "lock"), "rb+") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    holder: Any = json.loads(lock.read())
                    return int(holder["pid"]) if holder["name"] == name else None
        return None

    def _record(self, name: str, ending: str) -> Path:
        """A file about a run, named by a hash because the name of a run may hold any character."""
        digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:24]
        return self._records / f"{digest}.{ending}"
