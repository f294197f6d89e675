"""Weights at sites: what the simulator finds with the same files, sites find too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.execute import execute
from tests.deploy.test_sites import by_rows, run, table, write

CONFIG = """
[data]
id = "id"
weight = "times"
[model]
name = "linear"
[problem]
class_weights = "balanced"
[algorithm]
batch = 8
rounds = 4
rho = {a=0.9,alpha=0.3}
gamma = {a=0.5,alpha=0.6}
tau = 1.0
multipliers = "exact"
[run]
evaluate_every = 3
precision = "float64"
"""


def columns() -> dict[str, list[str]]:
    """The rows of the other tests, each with a weight."""
    rows = table()
    return {**rows, "times": [str(1 + i % 3) for i in range(len(rows["y"]))]}


def by_columns(folder: Path) -> list[Path]:
    """Two parties, of which the first has labels and weights."""
    files = []
    for number, names in enumerate((["id", "age", "times", "y"], ["id", "size", "town"])):
        write(folder / f"{number}.csv", {name: columns()[name] for name in names})
        files.append(folder / f"{number}.toml")
        files[-1].write_text(f'path = "{number}.csv"\nid = "id"\n')
    return files


@pytest.mark.parametrize("split", ["sample", "feature"])
def test_sites_train_as_the_simulator_does(split: str, tmp_path: Path) -> None:
    rows = split == "sample"
    settings = [] if rows else ["data.split=feature", "data.label_holder=0"]
    files = by_rows(tmp_path, columns()) if rows else by_columns(tmp_path)
    found, _ = run(parse(CONFIG, settings), files, tmp_path / "run")
    paths = [str(file.with_suffix(".csv")) for file in files]
    execute(parse(CONFIG, [*settings, f"data.path={paths}"]), tmp_path / "simulated")
    simulated = json.loads((tmp_path / "simulated/result.json").read_text())
    for name in ("objective", "train_cost", "test_cost"):
        assert found[name] == pytest.approx(simulated[name], rel=1e-6), name
    assert simulated["objective"] > 1.2 * simulated["train_cost"]  # weights are 2 on average


def test_a_site_without_the_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"site-1.*data.weight asks for column 'times'"):
        run(parse(CONFIG), by_rows(tmp_path, table()), tmp_path / "run")
