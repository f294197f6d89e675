"""Files that grow, are truncated, replaced or deleted: every row is read once, and whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fedssca.report.live.events import RowReader, RunEvents, events_of
from fedssca.report.live.folder import RunFolder
from fedssca.report.live.processes import RunProcesses
from tests.run_helpers import made_up, row


def rounds(read: tuple[bool, list]) -> tuple[bool, list[int]]:
    return read[0], [each["round"] for each in read[1]]


def test_rows_come_once_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = RowReader(file)
    assert reader.read() == (False, [])
    line = json.dumps(row(0)) + "\n"
    file.write_text(line + line[:30])
    assert rounds(reader.read()) == (True, [0])
    assert rounds(reader.read()) == (False, [])
    with open(file, "a") as more:
        more.write(line[30:])
    assert rounds(reader.read()) == (False, [0])
    with open(file, "a") as more:
        more.write("junk\n[1]\n" + json.dumps(row(5)) + "\n")
    assert rounds(reader.read()) == (False, [5])


def test_a_file_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = [json.dumps(row(k)) + "\n" for k in range(10)]
    file.write_text("".join(lines))
    reader = RowReader(file)
    assert rounds(reader.read()) == (True, list(range(10)))
    file.write_text("".join(lines[:3]))  # cut short
    assert rounds(reader.read()) == (True, [0, 1, 2])
    file.write_text("".join(lines[5:]))  # another text, longer than the old one
    assert rounds(reader.read()) == (True, [5, 6, 7, 8, 9])
    (tmp_path / "new").write_text("".join(lines[5:]))
    (tmp_path / "new").rename(file)  # replaced, as a resumed run does
    assert rounds(reader.read()) == (True, [5, 6, 7, 8, 9])
    file.unlink()
    assert reader.read() == (True, [])
    assert reader.read() == (False, [])


def test_a_watched_run_grows_ends_and_goes(tmp_path: Path) -> None:
    path = made_up(tmp_path / "run", rows=2, done=False)
    folder, processes = RunFolder(tmp_path), RunProcesses(tmp_path)
    watched = [RunEvents(folder, processes, name) for name in ("run", "none")]
    (first, whole), gone = events_of(watched)
    assert (first, whole["state"], whole["series"]["round"]) == ("run", "running", [0, 5])
    assert gone == ("gone", {"name": "none"})
    assert events_of(watched) == []
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row(10)) + "\n")
    ((kind, more),) = events_of(watched)
    assert (kind, more["series"]["round"]) == ("rows", [10])
    assert set(more["series"]) == set(whole["series"])
    (path / "result.json").write_text(json.dumps(row(10) | {"feasible": True}))
    ((kind, whole),) = events_of(watched)
    assert (kind, whole["state"], len(whole["series"]["round"])) == ("run", "complete", 3)
    shutil.rmtree(path)
    assert events_of(watched) == [("gone", {"name": "run"})]
    assert events_of(watched) == []
