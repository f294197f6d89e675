"""Costs besides a single round: several seeds together, a cohort of many clients, compiling."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

from fedssca.data import Dataset
from fedssca.run import config as cfg
from fedssca.run.seeds import train_together
from fedssca.studies.bench.child import last_line, run_child
from fedssca.studies.bench.task import CLASSES, SCALE, Images, Shape, rounds
from fedssca.studies.bench.timing import Workload

__all__ = ["compile_seconds", "crowd", "seeds", "start_seconds"]

SEEDS, RUN, SHORT = 10, 1000, 50
MILLION, CROWD, COHORT, FEW = 1_000_000, 100_000, 100, 10
SEEDED = f"runs of {SEEDS} seeds together / one run"
CROWDED = f"{CROWD:,} clients, cohort of {COHORT} / {COHORT} clients"
STEPS = (
    "algorithm.rho={a=0.9, alpha=0.3}",
    "algorithm.gamma={a=0.9, alpha=0.6}",
    "algorithm.tau=0.1",
)


def seeds(data: Images, length: int) -> dict[str, Workload]:
    """Return whole runs of ten seeds and of one, with compiling and one evaluation."""
    columns = {"x": data.x, "y": data.y}
    names = tuple(map(str, range(data.x.shape[1])))
    test = {name: column[:1000] for name, column in columns.items()}
    dataset = Dataset(data.name, columns, test, CLASSES, SCALE, names)

    def workload(count: int) -> Workload:
        settings = [*STEPS, f"algorithm.rounds={length}"]
        runs = [cfg.parse("", [*settings, f"run.seed={seed}"]) for seed in range(count)]
        at = [length - 1]
        return lambda n: [
            list(train_together(runs, dataset=dataset, evaluate_at=at)) for _ in range(n)
        ]

    return {"ten seeds": workload(SEEDS), "one seed": workload(1)}


def crowd(data: Images) -> tuple[Workload, Workload]:
    """Return rounds of a cohort of very many clients, and of as many clients without others."""
    many = Shape(clients=CROWD, rows=FEW, batch=FEW, cohort=COHORT)
    return rounds(data, many), rounds(data, many._replace(clients=COHORT, cohort=0))


def start_seconds(data: Images) -> float:
    """Return the seconds to the end of the first round with a million clients."""
    begun = time.perf_counter()
    rounds(data, Shape(clients=MILLION, rows=FEW, batch=FEW, cohort=COHORT))(1)
    return time.perf_counter() - begun


def compile_seconds(timeout: float = 300.0) -> dict[str, Any]:
    """Return the seconds of the first round and of the process, with an empty and a full cache."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as folder:
        own = {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        for name in ("cold", "warm"):
            command = [sys.executable, "-m", "fedssca.studies.bench.compile_time"]
            outcome = run_child(command, timeout, os.environ | own)
            if outcome.code != 0:
                return {"failed": last_line(outcome.err)}
            found[name] = json.loads(last_line(outcome.out)) | {"process": outcome.seconds}
    return found
