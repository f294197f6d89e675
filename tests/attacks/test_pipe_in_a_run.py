"""Somebody puts a pipe, a device or an endless file into the folder of runs.

He wants to hang the page, or to fill its memory: whoever reads a pipe waits for a writer that never
comes. What stops him: the page reads plain files within a size only, and opens without waiting.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedssca.report.gather import gather, open_file
from fedssca.report.live.events import RowReader
from fedssca.report.live.folder import RunFolder, last_row
from tests.run_helpers import made_up

FILES = ("result.json", "problem.json", "metrics.jsonl", "audit.json", "attack.png", "census.json")


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_does_not_hang_the_page(name: str, tmp_path: Path) -> None:
    run = tmp_path / "a"
    made_up(run)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    assert gather(run)["name"] == "a"
    assert [entry["name"] for entry in RunFolder(tmp_path).listing()] == ["a"]
    last_row(run)
    RowReader(run / "metrics.jsonl").read()


def test_a_pipe_as_configuration_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "config.toml")
    assert RunFolder(tmp_path).listing() == []


def test_devices_and_endless_files_are_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "result.json", "wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing
    with pytest.raises(OSError, match="larger than"):
        open_file(tmp_path, "result.json", 1000)
    (tmp_path / "metrics.jsonl").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="outside"):
        open_file(tmp_path, "metrics.jsonl", 1000)
