"""`fedssca data describe`: tables, runs, several files, arrays, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli_helpers import Shell


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("COLUMNS", "160")
    return Shell(tmp_path, monkeypatch, capsys)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = "".join(f"{i},{i % 37},{'ab'[i % 3 == 0]},{i % 2}\n" for i in range(100))
    (tmp_path / "t.csv").write_text("id,age,town,out\n" + rows)
    return tmp_path / "t.csv"


def test_a_table(shell: Shell, table: Path) -> None:
    shown = shell("data", "describe", table, "--label", "out")
    assert shown.code == 0, shown.err
    assert "t: 100 rows, 20 of them for testing; 3 columns become 3 features" in shown.out
    assert "label out: 0 50 (50.0%), 1 50 (50.0%)" in shown.out
    assert "looks like an id" in shown.out.replace("\n", " ")
    several = shell("data", "describe", table, table.parent / "t2.csv", "--label", "out")
    assert several.code == 2
    table.with_name("t2.csv").write_text(table.read_text())
    several = shell("data", "describe", table, table.parent / "t2.csv", "--label", "age > 20")
    assert "t and 1 more: 200 rows of 2 clients" in several.out
    assert "label age > 20: age <= 20" in several.out


def test_a_run(shell: Shell, table: Path) -> None:
    run = table.with_name("run.toml")
    run.write_text(f'[data]\npath = "{table}"\nlabel = "out"\n')
    told = json.loads(shell("data", "describe", run, "--json").out)
    assert [c["kind"] for c in told["columns"]] == ["left out", "number", "category"]
    assert told["classes"] == {"0": 50, "1": 50}
    assert told["features"] == 3
    told = json.loads(shell("data", "describe", run, "--json", "--set", 'data.drop=["town"]').out)
    assert told["features"] == 1
    assert "64 features" in shell("data", "describe", shell.small, "--set", "data.name=digits").out


def test_bad_input(shell: Shell, table: Path) -> None:
    assert "no label is given" in shell("data", "describe", table).out
    line = shell.refused("data", "describe", table, "--label", "outcome")
    assert "there is no column 'outcome'; set label to one of id, age, town, out" in line
    assert "is not there" in shell.refused("data", "describe", "none.csv")
