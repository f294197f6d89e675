"""`fedssca predict`: what it writes and prints, and one clear line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedssca.data.tables import read_csv, write_csv
from tests.cli_helpers import Shell, one_line, result

ROWS = 120


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("COLUMNS", "80")
    return Shell(tmp_path, monkeypatch, capsys)


def test_from_a_table_to_predictions(shell: Shell, tmp_path: Path) -> None:
    """One run, then everything that is done with its model."""
    rng = np.random.default_rng(0)
    x, town = rng.normal(5, 2, ROWS), rng.choice(["north", "south"], ROWS)
    state = np.where(x + (town == "north") + rng.normal(0, 1, ROWS) > 6, "sick", "well")
    table = {"id": np.array([f"p{i}" for i in range(ROWS)]), "x": x, "town": town, "state": state}
    write_csv(tmp_path / "rows.csv", table)
    limit = 'problem.constraint=[{kind="fnr", limit=0.9, positive="sick"}]'
    path = [f"data.path={tmp_path}/rows.csv", "data.label=state", "problem.objective=loss"]
    run = tmp_path / "run"
    shell.run(run, *path, limit)

    out = tmp_path / "p.csv"
    said = shell("predict", run, tmp_path / "rows.csv", "--out", out)
    assert said.code == 0, said.err
    assert "on 120 rows with labels: loss " in said.out
    assert "fnr of 'sick'" in said.out
    assert f"of {(state == 'sick').sum()}" in said.out
    assert "✓" in said.out
    assert "120 rows predicted: " in said.out
    assert out.read_text().splitlines()[0] == "id,prediction,p[sick],p[well]"
    found = read_csv(out)
    assert found["id"].tolist() == table["id"].tolist()
    told, test = result(run), 24
    both = (told["train_accuracy"] * (ROWS - test) + told["test_accuracy"] * test) / ROWS
    assert (found["prediction"] == state).mean() == pytest.approx(both)

    bare = {name: cells for name, cells in table.items() if name != "state"}
    write_csv(tmp_path / "bare.csv", bare | {"town": np.where(x > 7, "east", town)})
    said = shell("predict", run, tmp_path / "bare.csv")
    assert len(said.out.splitlines()) == ROWS + 1  # nothing but predictions on stdout
    assert f"note: column 'town': {(x > 7).sum()} cells hold a value" in said.err
    assert shell("predict", run, tmp_path / "bare.csv", "--quiet").err == ""

    whole = json.loads(shell("predict", run, tmp_path / "rows.csv", "--json").out)
    assert whole["predictions"] == found["prediction"].tolist()
    assert whole["ids"] == {"id": table["id"].tolist()}
    assert whole["evaluation"]["limits"][0]["kept"] is True
    brief = json.loads(shell("predict", run, tmp_path / "bare.csv", "--out", out, "--json").out)
    assert brief["evaluation"] is None
    assert brief["out"] == str(out)
    assert sum(brief["predicted"].values()) == ROWS
    assert "predictions" not in brief

    write_csv(tmp_path / "other.csv", {"id": bare["id"], "X": x, "town": town})
    line = shell.refused("predict", run, tmp_path / "other.csv")
    assert "other.csv: column 'x' is missing, which the model needs; " in line
    line = shell.refused("predict", run, tmp_path / "rows.csv", "--out", tmp_path / "no/p.csv")
    assert "cannot write" in line
    (run / "result.json").unlink()
    assert "--resume" in one_line(shell("predict", run, tmp_path / "rows.csv").err)


def test_the_help_has_an_example(shell: Shell) -> None:
    said = shell("predict", "--help").out
    assert "Example: fedssca predict runs/first new.csv --out predictions.csv" in said
