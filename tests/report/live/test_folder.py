"""The folder of runs: a fast list, and names that lead nowhere else."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import BinaryIO

import pytest

from fedssca import UserError
from fedssca.report.gather import open_file
from fedssca.report.live.folder import RunFolder, check_name, last_row
from tests.run_helpers import made_up, row


def test_a_list_says_what_runs_are(tmp_path: Path) -> None:
    made_up(tmp_path / "done")
    running = made_up(tmp_path / "running", done=False)
    old = made_up(tmp_path / "old", done=False)
    (tmp_path / "no run").mkdir()
    (tmp_path / "file").write_text("")
    made_up(tmp_path / ".hidden")
    config = tmp_path / "done/config.toml"
    config.write_text(config.read_text().replace("\nrounds = 21", '\nrounds = "auto"'))
    for file in old.iterdir():
        os.utime(file, (1e9, 1e9))
    with open(running / "metrics.jsonl", "a") as file:
        file.write('{"round": 99, "half')
    listing = {run["name"]: run for run in RunFolder(tmp_path).listing()}
    assert {name: run["state"] for name, run in listing.items()} == {
        "done": "complete",
        "running": "running",
        "old": "paused",
    }
    assert listing["running"]["round"] == 20
    assert listing["running"]["rounds"] == 20
    assert listing["done"]["rounds"] == 9999
    assert listing["done"]["data"] == "breast-cancer"
    assert listing["done"]["algorithm"] == "ssca"
    assert listing["done"]["kept"] == [0, 1]
    assert list(listing)[-1] == "old"


def test_a_list_follows_changes(tmp_path: Path) -> None:
    path, runs = made_up(tmp_path / "run", done=False), RunFolder(tmp_path)
    assert runs.listing()[0]["round"] == 20
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row(25)) + "\n")
    assert runs.listing()[0]["round"] == 25
    shutil.rmtree(path)
    assert runs.listing() == []
    shutil.rmtree(tmp_path)
    assert runs.listing() == []


def test_a_list_reads_only_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes a list of a thousand runs fast; benchmarks/ui.py measures it."""
    for k in range(30):
        made_up(tmp_path / f"run-{k:04}", rows=20, done=k % 2 == 0)
    read: list[str] = []

    def counted(path: Path, name: str, most: int) -> BinaryIO:
        read.append(f"{path.name}/{name}")
        return open_file(path, name, most)

    monkeypatch.setattr("fedssca.report.live.folder.open_file", counted)

    def whole(path: Path, name: str, most: int) -> bytes:
        with counted(path, name, most) as file:
            return file.read()

    monkeypatch.setattr("fedssca.report.live.folder.read_file", whole)
    runs = RunFolder(tmp_path)
    assert len(runs.listing()) == 30
    assert len(read) == 45  # every config.toml, and metrics.jsonl of the 15 without a result
    read.clear()
    with open(tmp_path / "run-0001" / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row(500)) + "\n")
    assert len(runs.listing()) == 30
    assert set(read) == {"run-0001/config.toml", "run-0001/metrics.jsonl"}


@pytest.mark.parametrize(
    "name", ["../x", "../../x", "a/b", "/etc", "..", ".", "", ".page", "a\0b", "a/../../b"]
)
def test_names_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    made_up(tmp_path / "x")
    folder = tmp_path / "runs"
    folder.mkdir()
    with pytest.raises(UserError):
        RunFolder(folder).path(name)


@pytest.mark.parametrize("name", ["a", "2026-11-16", "Run_1.5"])
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "../../x", "<img src=x onerror=alert(1)>", ".x", "-x", "a b", "é", "x" * 101, "a\n"],
)
def test_bad_names(name: str) -> None:
    with pytest.raises(UserError, match="letters"):
        check_name(name)


def test_the_last_row_is_found_from_the_end(tmp_path: Path) -> None:
    path = made_up(tmp_path / "run", rows=0, done=False)
    assert last_row(path) is None
    wide = row(1, constraints=[0.0] * 100_000)
    with open(path / "metrics.jsonl", "w") as file:
        file.write(json.dumps(row(0)) + "\n" + json.dumps(wide) + "\n" + json.dumps(wide)[:900_000])
    found = last_row(path)
    assert found is not None
    assert found["round"] == 1
