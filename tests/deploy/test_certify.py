"""Limits on new rows in a deployment: the counts of the simulator, and who learns what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.data.tables import write_csv
from fedssca.run.config import Config, parse
from fedssca.run.execute import execute
from tests.deploy.loopback import deployed

pytestmark = [
    pytest.mark.filterwarnings("ignore:convergence is not guaranteed"),
    pytest.mark.filterwarnings("ignore:the sum of two parties"),
]
SITES = 4
BASE = """
[data]
label = "y"
id = "id"
clients = 4
calibration_fraction = 0.4
[model]
name = "linear"
[problem]
confidence = 0.9
[[problem.constraint]]
kind = "fnr"
positive = 1
limit = 0.3
[[problem.constraint]]
kind = "opportunity"
column = "group"
limit = 0.3
[[problem.constraint]]
kind = "loss"
limit = 0.7
[algorithm]
batch = 20
rounds = 12
[run]
evaluate_every = 10
"""


def table(folder: Path, rows: int = 1600) -> Path:
    """People with an id, two groups, and a label that three columns predict."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((rows, 3))
    y = (x @ [1.0, -0.7, 0.4] + 0.7 * rng.standard_normal(rows) > 0).astype(int)
    columns: dict[str, Any] = {f"x{j}": x[:, j] for j in range(3)}
    columns["group"] = np.where(rng.random(rows) < 0.5, "north", "south")
    columns |= {"id": np.array([f"p{i:05d}" for i in range(rows)]), "y": y}
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "people.csv", columns)
    return folder / "people.csv"


def asked(folder: Path, *settings: str) -> Config:
    return parse(BASE, [f"data.path={table(folder)}", *settings])


CASES = {
    "rows": [],
    "rows, secure sum": ["privacy.secure_sum=true"],
    "columns": ["data.split=feature", "data.label_holder=1"],
    "columns, secure sum": ["data.split=feature", "privacy.secure_sum=true"],
}


@pytest.mark.parametrize("case", CASES)
def test_the_bounds_are_those_of_the_simulator(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedssca.evaluate.confidence.path.STEPS", 2)
    config = asked(tmp_path, *CASES[case])
    theirs = execute(config, tmp_path / "simulated")["certificate"]
    ours = deployed(config, SITES, tmp_path)[0]["certificate"]
    assert ours["certified"] is theirs["certified"] is True
    for name in ("confidence", "certify", "models_tested"):
        assert ours[name] == theirs[name]
    for mine, other in zip(ours["constraints"], theirs["constraints"], strict=True):
        for name in ("bound", "calibration_rows", "certified", "confidence"):
            assert mine[name] == other[name], name
        counts = [np.array(entry["calibration_counts"]) for entry in (mine, other)]
        np.testing.assert_allclose(*counts, rtol=1e-3)  # sums of losses: of nearly equal models
    for mine, other in zip(ours["claims"], theirs["claims"], strict=True):
        if "hits" in other["evidence"]:
            assert mine == other
