"""The folder of runs: a fast list, and names that lead nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from fedssca import UserError
from fedssca.report.live.shelf import Shelf, check_name, last_row
from tests.run_helpers import made_up, row


def test_a_list_says_what_runs_are(tmp_path: Path) -> None:
    made_up(tmp_path / "done")
    going = made_up(tmp_path / "going", done=False)
    old = made_up(tmp_path / "old", done=False)
    (tmp_path / "no run").mkdir()
    (tmp_path / "file").write_text("")
    made_up(tmp_path / ".hidden")
    for file in old.iterdir():
        os.utime(file, (1e9, 1e9))
    with open(going / "metrics.jsonl", "a") as file:
        file.write('{"round": 99, "half')
    listing = {run["name"]: run for run in Shelf(tmp_path).listing()}
    assert {name: run["state"] for name, run in listing.items()} == {
        "done": "complete",
        "going": "going",
        "old": "paused",
    }
    assert listing["going"]["round"] == 20
    assert listing["going"]["rounds"] == 20
    assert listing["done"]["data"] == "breast-cancer"
    assert listing["done"]["algorithm"] == "ssca"
    assert listing["done"]["kept"] == [0, 1]
    assert list(listing)[-1] == "old"


def test_a_list_follows_changes(tmp_path: Path) -> None:
    path, shelf = made_up(tmp_path / "run", done=False), Shelf(tmp_path)
    assert shelf.listing()[0]["round"] == 20
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row(25)) + "\n")
    assert shelf.listing()[0]["round"] == 25
    shutil.rmtree(path)
    assert shelf.listing() == []
    shutil.rmtree(tmp_path)
    assert shelf.listing() == []


def test_a_thousand_runs_within_a_second(tmp_path: Path) -> None:
    for k in range(1000):
        made_up(tmp_path / f"run-{k:04}", rows=20, done=k % 2 == 0)
    shelf = Shelf(tmp_path)
    begun = time.process_time()
    assert len(shelf.listing()) == 1000
    first = time.process_time() - begun
    begun = time.process_time()
    assert len(shelf.listing()) == 1000
    again = time.process_time() - begun
    assert first < 1.0
    assert again < first


@pytest.mark.parametrize(
    "name", ["../x", "../../x", "a/b", "/etc", "..", ".", "", ".page", "a\0b", "a/../../b"]
)
def test_names_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    made_up(tmp_path / "x")
    folder = tmp_path / "runs"
    folder.mkdir()
    with pytest.raises(UserError):
        Shelf(folder).path(name)


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
