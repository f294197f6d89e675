"""Run directories for the tests of pages: real small ones, and made-up ones in any number."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fedssca.run.config import parse, render
from fedssca.run.execute import execute
from tests.cli_helpers import SMALL


def train(path: Path, *settings: str) -> Path:
    """A real run of a second."""
    execute(parse(SMALL, settings), path)
    return path


@cache
def config_text() -> str:
    return render(parse(SMALL))


def row(at: int, **more: Any) -> dict[str, Any]:
    """A row as a run writes it."""
    return {
        "round": at,
        "slack": [0.0],
        "multipliers": [1.5],
        "objective": 3.0 + 1 / (1 + at),
        "constraints": [0.5 - 0.01 * at],
        "norm_sq": 4.0,
        "train_cost": 0.8 - 0.01 * at,
        "test_accuracy": 0.9,
        "bytes_up": 100 * at,
        "bytes_down": 200 * at,
        "seconds": 0.1 * at,
    } | more


def made_up(path: Path, rows: int = 5, done: bool = True, **more: Any) -> Path:
    """A run directory without the run."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(config_text())
    lines = [row(5 * k, **more) for k in range(rows)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    limits = {"constraint_names": ["loss"], "limits": [0.3]}
    (path / "problem.json").write_text(json.dumps(limits))
    if done:
        entry = {"name": "loss", "value": 0.29, "limit": 0.3, "margin": 0.01, "feasible": True}
        entry |= {"multiplier": 1.5, "relaxing_by_0.01_buys": 0.015}
        certificate = {"feasible": True, "kkt_residual": 0.1, "constraints": [entry]}
        result = lines[-1] | limits | {"feasible": True, "kkt_residual": 0.1, "notes": []}
        (path / "result.json").write_text(json.dumps(result | {"certificate": certificate}))
    return path
