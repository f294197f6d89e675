"""What programs of several processes share: the cores they may use, and who hears which signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["cores", "ignoring_ctrl_c", "on_signal"]


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
