"""Processes, cores, signals, ports, user folders, and the cache of compiled programs."""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = [
    "COMMAND",
    "cores",
    "end_with_parent",
    "free_port",
    "ignoring_ctrl_c",
    "on_signal",
    "remember",
    "user_cache",
]


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


EVERYTHING: dict[str, float] = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""Small programs too: reading one is faster than compiling it."""


def user_cache() -> Path:
    """`fedssca` in `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedssca"


def remember(folder: Path | None = None) -> Path | None:
    """Keep compiled programs in `folder`; none: in the user's cache, one folder a kind of machine.

    Processes started from now on keep theirs there too. Settings of JAX's own environment variables
    win, and where no folder can be made nothing is kept: then None comes back.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None
    place = folder or user_cache() / "compiled" / _machine()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    for name, value in (EVERYTHING | {"jax_compilation_cache_dir": str(place)}).items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value)
            if "jax" in sys.modules:
                sys.modules["jax"].config.update(name, value)
    return place


def _machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """A name for the processor: a home folder may be shared by machines of several kinds."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    seen = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    text = "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(seen)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
