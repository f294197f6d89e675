"""How XLA compiles the small programs of tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fedssca.system import processor_kind, user_cache

__all__ = ["compile_fast", "programs_of_tests"]

MOST_BYTES = 1e9
"""The size at which the folder of compiled programs is emptied."""

FAST = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false"
)
IN_ONE_PART = "--xla_cpu_parallel_codegen_split_count=1"
"""Do not cut a program into parts that are compiled side by side: a sixth of the time less."""


def compile_fast() -> None:
    """Compile in less than half of the usual time; call it before JAX computes anything.

    Most of the time of tests goes into compiling small programs. `XLA_FLAGS= make test` runs them
    with programs as users have them.
    """
    os.environ.setdefault("XLA_FLAGS", f"{FAST} {IN_ONE_PART}")


def programs_of_tests() -> Path:
    """The folder for the compiled programs of tests, in the user's cache: clones share it."""
    place = user_cache() / "compiled-by-tests" / processor_kind()
    if "PYTEST_XDIST_WORKER" not in os.environ and place.exists():
        with os.scandir(place) as files:
            size = sum(file.stat().st_size for file in files)
        if size > MOST_BYTES:
            shutil.rmtree(place, ignore_errors=True)
    return place
