"""Processes that a test starts must not outlive it: they are found, killed and reported.

Every process that a test starts inherits the environment variable MARK, so it is found also after
the process between the two has ended. A guard process does the same when pytest itself is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "FEDSSCA_TEST_SESSION"
PROC = os.path.isdir("/proc")
GRACE = 60.0
"""Seconds that processes have to end by themselves after a test that passed."""

TRACKER = "multiprocessing.resource_tracker"
"""Python's own helper of worker processes: one, and it ends with the session."""

GUARD = f"""
import os, sys
sys.stdin.buffer.read()  # returns when the process at the other end of the pipe has ended
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from tests.leftovers import end, marked
while found := marked(sys.argv[1]) - {{os.getpid()}}:
    end(found)
"""


def processes() -> set[int]:
    """All processes of this machine, where it has /proc."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()} if PROC else set()


def marked(value: str, known: Set[int] = frozenset()) -> set[int]:
    """The processes but those `known` whose environment holds MARK with this value.

    Zombies are excepted.
    """
    wanted = f"{MARK}={value}".encode()
    found = set()
    for process in processes() - known:
        with suppress(OSError):
            if wanted in Path("/proc", str(process), "environ").read_bytes().split(b"\0"):
                found.add(process)
    return found


def end(processes: set[int]) -> None:
    """Kill them."""
    for process in processes:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def command(process: int) -> str:
    """The command line of a process."""
    with suppress(OSError):
        line = Path("/proc", str(process), "cmdline").read_bytes()
        return line.replace(b"\0", b" ").decode(errors="replace").strip()
    return "ended meanwhile"


class Leftovers:
    """The processes that the tests of this session, or of this worker of it, have started."""

    def __init__(self) -> None:
        self._value = uuid.uuid4().hex
        guard = [sys.executable, "-c", GUARD, self._value]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        os.environ[MARK] = self._value  # from here on: the guard must not find itself

    def close(self) -> None:
        """End the guard, and with it all that is left."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()

    def running(self, known: Set[int] = frozenset()) -> set[int]:
        """Those but the `known` that run now."""
        found = marked(self._value, known)
        return {process for process in found if TRACKER not in command(process)}

    @contextmanager
    def none_stays(self, failed: Callable[[], bool], grace: float = GRACE) -> Iterator[None]:
        """Kill at the end what was started in here and still runs.

        After a test that passed this is an error, and processes that are about to end have `grace`
        seconds for it. After a test that failed they have none, and it is no second error.
        """
        before = processes()
        yield
        seconds = 0.0 if failed() else grace
        until = time.monotonic() + seconds
        while (left := self.running(before)) and time.monotonic() < until:
            time.sleep(0.05)
        told = "".join(f"\n  {process}: {command(process)}" for process in sorted(left))
        while left := self.running(before):
            end(left)
            time.sleep(0.01)
        assert failed() or not told, f"processes that the test started are still running:{told}"
