"""Processes, cores, signals, ports, user folders, and the cache of compiled programs."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from platformdirs import user_cache_path

__all__ = [
    "COMMAND",
    "cores",
    "end_with_parent",
    "free_port",
    "ignoring_ctrl_c",
    "keep_compiled_programs",
    "machine",
    "on_signal",
    "pip_install",
    "processor_kind",
    "starting_up",
    "user_cache",
]

COMMAND = "FEDSSCA_COMMAND"
"""The environment variable with the process id of the command that started a deployment."""
CPU_INFO = Path("/proc/cpuinfo")


def cores() -> list[int]:
    """Return the processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def machine() -> str:
    """Describe the processor, the number of cores that this process may use, and the system."""
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = named[0] if named else platform.processor() or platform.machine()
    return f"{model}, {len(cores())} cores, {platform.system()}"


def pip_install(*extras: str) -> str:
    """The command that installs these extras from where this installation came from.

    That is a folder with the repository or a wheel, which pip has noted (PEP 610), or else the
    package index. The versions of the repository's constraints.txt are used where it is there.
    """
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    named = f"[{','.join(extras)}]" if extras else ""
    try:
        noted = json.loads(distribution("fedssca").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        noted = {}
    if "dir_info" not in noted:
        origin = f" @ {noted['url']}" if "url" in noted else ""
        return f"pip install 'fedssca{named}{origin}'"
    folder = Path(url2pathname(urlsplit(noted["url"]).path))
    pins = folder / "constraints.txt"
    chosen = f"-c '{pins}' " if pins.exists() else ""
    editable = "-e " if noted["dir_info"].get("editable") else ""
    return f"pip install {chosen}{editable}'{folder}{named}'"


@contextmanager
def on_signal(number: int, handler: Callable[..., Any] | signal.Handlers) -> Iterator[None]:
    """Use another signal handler inside the block.

    Python sets handlers in the main thread only; in any other thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def ignoring_ctrl_c() -> AbstractContextManager[None]:
    """Ignore Ctrl-C inside the block, in this process and in processes started there."""
    return on_signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def starting_up() -> Iterator[None]:
    """End the process at once on Ctrl-C inside the block, with one line and exit code 130.

    Commands import large libraries in such a block: nothing has been done yet, and a
    KeyboardInterrupt in the middle of an import could end in a traceback. A process whose parent
    ignores Ctrl-C (`nohup`, a job in the background of a script) goes on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    with on_signal(signal.SIGINT, _end_at_once):
        yield


def _end_at_once(*_: Any) -> NoReturn:
    os.write(2, b"stopped before anything was done\n")
    os._exit(130)


def end_with_parent() -> None:
    """Make this process end within a second of the process that started it.

    A thread checks for the parent, because the kernel's own signal depends on the thread that
    started a process, and engines start processes from short-lived threads. The variable COMMAND
    names one more process to check: the command that started the deployment, which may have ended
    before this process began.
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
    """Return a port of this machine on which no process listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def user_cache() -> Path:
    """Return the user's cache folder for this package (on Linux `~/.cache/fedssca`)."""
    return user_cache_path("fedssca", appauthor=False)


CACHE_SETTINGS: dict[str, float] = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""Keep small programs too, because reading one is faster than compiling it."""


def keep_compiled_programs(folder: Path | None = None) -> Path | None:
    """Keep compiled programs in `folder`, by default in the user's cache folder.

    The default has one subfolder for each type of processor. Processes that are started afterwards
    use the same folder. JAX's own environment variables take precedence. The result is the folder,
    or None if those variables name another one or the folder cannot be made.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None
    place = folder or user_cache() / "compiled" / processor_kind()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    for name, value in (CACHE_SETTINGS | {"jax_compilation_cache_dir": str(place)}).items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value)
            if "jax" in sys.modules:
                sys.modules["jax"].config.update(name, value)
    return place


def processor_kind(cpuinfo: Path = CPU_INFO) -> str:
    """Return a short name of the processor: machines of several types may share a home folder."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    seen = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    text = "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(seen)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
