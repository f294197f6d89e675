"""What programs of several processes share: the cores they may use, and who hears which signal."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["COMMAND", "cores", "end_with_parent", "free_port", "ignoring_ctrl_c", "on_signal"]

COMMAND = "FEDSSCA_COMMAND"


def cores() -> list[int]:
    """The processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def on_signal(number: int, handler: Callable[..., Any] | signal.Handlers) -> Iterator[None]:
    """Another handler in here; outside the main thread nothing changes, Python allows no more."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def ignoring_ctrl_c() -> Any:
    """Ctrl-C is not heard in here, nor by processes that are started in here."""
    return on_signal(signal.SIGINT, signal.SIG_IGN)


def end_with_parent() -> None:
    """From now on this process ends within a second of the one that started it, come what may.

    A thread looks for it: the kernel's own signal goes by the thread that started a process, and
    engines start processes from threads that come and go. The variable COMMAND names a process to
    look for as well: the command that started it all, which may have ended before this began.
    """
    parent, command = os.getppid(), int(os.environ.get(COMMAND, "0"))

    def watch() -> None:
        while os.getppid() == parent and (not command or _exists(command)):
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def free_port() -> int:
    """A port of this machine that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
