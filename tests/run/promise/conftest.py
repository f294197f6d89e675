"""Two small runs with a certificate, made once: clients with rows, and clients with columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedssca.run.config import parse
from fedssca.run.execute import execute

ROWS = """
[data]
name = "breast-cancer"
clients = 2
calibration_fraction = 0.5
[model]
name = "linear"
[problem]
confidence = 0.9
certify = "each_site"
[[problem.constraint]]
kind = "fnr"
positive = 0
limit = 0.3
[[problem.constraint]]
kind = "loss"
limit = 1.0
[algorithm]
batch = 20
rounds = 10
rho = {a = 0.9, alpha = 0.6}
gamma = {a = 0.5, alpha = 0.9}
tau = 0.2
multipliers = "exact"
"""


@contextmanager
def short_path() -> Iterator[None]:
    """Few models, with few steps and few thresholds between them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedssca.evaluate.confidence.path.STEPS", 2)
        patch.setattr("fedssca.evaluate.confidence.path.SHIFTS", (2.0,))
        patch.setattr("fedssca.evaluate.confidence.path.SHARES", (2.0, 0.0))
        patch.setattr("fedssca.evaluate.thresholds.TOTAL", 12)
        yield


@pytest.fixture(scope="session")
def rows_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rows") / "run"
    with short_path():
        found = execute(parse(ROWS), out)
    assert found["certificate"]["certified"] is True
    return out


@pytest.fixture(scope="session")
def columns_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("columns") / "run"
    settings = ["data.split=feature", "problem.certify=pooled", "problem.confidence=0.95"]
    with short_path():
        found = execute(parse(ROWS, settings), out)
    assert found["certificate"]["certified"] is True
    return out
