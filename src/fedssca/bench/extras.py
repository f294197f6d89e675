"""Costs outside a single round: several seeds together, a cohort out of a crowd, compiling."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from typing import Any

import jax

from fedssca import config as cfg
from fedssca.bench.child import last_line, run_child
from fedssca.bench.task import CLASSES, SCALE, Images, take
from fedssca.bench.timing import Way
from fedssca.build import build
from fedssca.data import Dataset
from fedssca.runtime.fused import Fused

__all__ = ["compile_seconds", "crowd", "seeds"]

SEEDS, RUN, SHORT = 10, 1000, 50
CROWD, COHORT, FEW = 100_000, 100, 10
SEEDED = f"runs of {SEEDS} seeds together / one run"
CROWDED = f"{CROWD:,} clients, cohort of {COHORT} / {COHORT} clients"
STEPS = (
    "algorithm.rho={a=0.9, alpha=0.3}",
    "algorithm.gamma={a=0.9, alpha=0.6}",
    "algorithm.tau=0.1",
)


def seeds(data: Images, rounds: int) -> dict[str, Way] | None:
    """Whole runs, compiling and one evaluation included: of ten seeds, and of one."""
    try:
        from fedssca.together import train_together
    except ImportError:
        return None
    dataset = _dataset(data, 10, 6000)

    def way(count: int) -> Way:
        settings = [*STEPS, f"algorithm.rounds={rounds}"]
        runs = [cfg.parse("", [*settings, f"run.seed={seed}"]) for seed in range(count)]
        at = [rounds - 1]
        return lambda n: [train_together(runs, dataset=dataset, evaluate_at=at) for _ in range(n)]

    return {"ten seeds": way(SEEDS), "one seed": way(1)}


def crowd(data: Images) -> tuple[Way, Way] | None:
    """A cohort out of very many clients, and as many clients that all take part.

    Skipped where a run has no key `cohort`.
    """
    sections = {"algorithm": cfg.Algorithm, "data": cfg.Data}
    keys = [
        f"{section}.cohort"
        for section, kind in sections.items()
        if "cohort" in {field.name for field in dataclasses.fields(kind)}
    ]

    def way(clients: int, *settings: str) -> Way:
        sizes = f"data.clients={clients}", f"algorithm.batch={FEW}"
        config = cfg.parse("", [*STEPS, *sizes, *settings])
        job = build(config, _dataset(data, clients, FEW))
        engine = Fused(job.problem, job.clients, job.algorithm, 0)
        first = job.algorithm.init(job.problem.start)
        return lambda n: jax.block_until_ready(engine.advance(first, n))

    return (way(CROWD, f"{keys[0]}={COHORT}"), way(COHORT)) if keys else None


def _dataset(data: Images, clients: int, rows: int) -> Dataset:
    columns = take(data, clients, rows).columns
    names = tuple(map(str, range(columns["x"].shape[1])))
    test = {name: column[:1000] for name, column in columns.items()}
    return Dataset(data.name, columns, test, CLASSES, SCALE, names)


def compile_seconds(timeout: float = 300.0) -> dict[str, Any]:
    """Seconds of the first round, and of all of a new process: empty cache, then a full one."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as folder:
        own = {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        for name in ("cold", "warm"):
            command = [sys.executable, "-m", "fedssca.bench.compiling"]
            outcome = run_child(command, timeout, os.environ | own)
            if outcome.code != 0:
                return {"failed": last_line(outcome.err)}
            found[name] = json.loads(last_line(outcome.out)) | {"process": outcome.seconds}
    return found
