"""Child processes that leave no descendants: own session, and a mark in their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from fedssca.system import ignoring_ctrl_c

__all__ = ["ChildOutcome", "last_line", "run_child"]

MARK = "FEDSSCA_BENCH_CHILD"
PATIENCE = 3.0
"""Seconds between asking processes to end and killing them."""


class ChildOutcome(NamedTuple):
    """How a child process ended."""

    code: int | None
    """The exit code; None after a timeout."""
    out: str
    err: str
    seconds: float


def run_child(
    command: Sequence[str], timeout: float, env: Mapping[str, str] | None = None
) -> ChildOutcome:
    """Run a command for at most `timeout` seconds, and end its descendants in any case."""
    mark = uuid.uuid4().hex
    given = dict(os.environ if env is None else env) | {MARK: mark}
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=given,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with ignoring_ctrl_c():  # A second Ctrl-C waits until the descendants are gone.
                _end(process, mark)
        return ChildOutcome(code, _text(out), _text(err), time.perf_counter() - begun)


def last_line(text: str, width: int = 160) -> str:
    """Return the last line that is not empty, short enough for a table."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    line = lines[-1] if lines else "it said nothing"
    return line if len(line) <= width else line[: width - 1] + "…"


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ask the processes to end, wait, then kill them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        limit = time.perf_counter() + PATIENCE
        if process.poll() is not None and not _living(process.pid, mark):
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        for pid in _living(process.pid, mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        while time.perf_counter() < limit:
            if process.poll() is not None and not _living(process.pid, mark):
                return
            time.sleep(0.02)


def _living(group: int, mark: str) -> list[int]:
    """Return the processes of the group, and those that left it but have the mark (Linux)."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            state, _, own = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if state != "Z" and (int(own) == group or wanted in (entry / "environ").read_bytes()):
                found.append(int(entry.name))
    return found


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
