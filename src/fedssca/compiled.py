"""Compiled programs outlive the process: the second run of a kind starts without the compiler."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import jax

from fedssca.data.fetch import user_cache

__all__ = ["remember"]

EVERYTHING: dict[str, float] = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""Small programs too: reading one is faster than compiling it."""


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
            jax.config.update(name, value)
    return place


def _machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """A name for the processor: a home folder may be shared by machines of several kinds."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    seen = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    text = "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(seen)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
