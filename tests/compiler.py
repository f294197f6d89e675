"""How XLA compiles the small programs of tests."""

from __future__ import annotations

import os

__all__ = ["compile_fast"]

FAST = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false"
)


def compile_fast() -> None:
    """Optimise nothing, which halves the time of compiling; call it before JAX computes anything.

    Most of the time of tests goes into compiling small programs. `XLA_FLAGS= make test` runs them
    with programs as users have them.
    """
    os.environ.setdefault("XLA_FLAGS", FAST)
