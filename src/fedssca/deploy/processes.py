"""Processes that end with the block that started them, and whether a process still runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

__all__ = ["ending", "still_runs"]


def still_runs(process: int) -> bool:
    """Whether there is such a process; one that has ended may be listed until it is waited for."""
    import psutil  # comes with the engine

    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def ending(processes: Mapping[str, subprocess.Popen[bytes]]) -> Iterator[None]:
    """However this block is left, the processes in the mapping and their children have ended."""
    try:
        yield
    finally:
        import psutil  # comes with the engine

        family = []
        for process in processes.values():
            with suppress(psutil.Error):
                top = psutil.Process(process.pid)
                family += [*top.children(recursive=True), top]
        for member in family:
            with suppress(psutil.Error):
                member.terminate()
        _, alive = psutil.wait_procs(family, timeout=5)
        for member in alive:
            with suppress(psutil.Error):
                member.kill()
        psutil.wait_procs(alive, timeout=5)
        for process in processes.values():
            process.wait()
