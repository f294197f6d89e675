"""Files that grow, are cut short, replaced, deleted: rows come once, and whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fedssca.report.live.jobs import Jobs
from fedssca.report.live.shelf import Shelf
from fedssca.report.live.watch import Tail, Watch
from tests.run_helpers import made_up, row


def rounds(read: tuple[bool, list]) -> tuple[bool, list[int]]:
    return read[0], [each["round"] for each in read[1]]


def test_rows_come_once_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    tail = Tail(file)
    assert tail.read() == (False, [])
    line = json.dumps(row(0)) + "\n"
    file.write_text(line + line[:30])
    assert rounds(tail.read()) == (True, [0])
    assert rounds(tail.read()) == (False, [])
    with open(file, "a") as more:
        more.write(line[30:])
    assert rounds(tail.read()) == (False, [0])
    with open(file, "a") as more:
        more.write("junk\n[1]\n" + json.dumps(row(5)) + "\n")
    assert rounds(tail.read()) == (False, [5])


def test_a_file_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = [json.dumps(row(k)) + "\n" for k in range(10)]
    file.write_text("".join(lines))
    tail = Tail(file)
    assert rounds(tail.read()) == (True, list(range(10)))
    file.write_text("".join(lines[:3]))  # cut short
    assert rounds(tail.read()) == (True, [0, 1, 2])
    file.write_text("".join(lines[5:]))  # another text, longer than the old one
    assert rounds(tail.read()) == (True, [5, 6, 7, 8, 9])
    (tmp_path / "new").write_text("".join(lines[5:]))
    (tmp_path / "new").rename(file)  # replaced, as a resumed run does
    assert rounds(tail.read()) == (True, [5, 6, 7, 8, 9])
    file.unlink()
    assert tail.read() == (True, [])
    assert tail.read() == (False, [])


def test_a_watched_run_grows_ends_and_goes(tmp_path: Path) -> None:
    path = made_up(tmp_path / "run", rows=2, done=False)
    watch = Watch(Shelf(tmp_path), Jobs(tmp_path), ["run", "none"])
    (first, whole), gone = watch.news()
    assert (first, whole["state"], whole["series"]["round"]) == ("run", "going", [0, 5])
    assert gone == ("gone", {"name": "none"})
    assert list(watch.news()) == []
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row(10)) + "\n")
    ((kind, more),) = watch.news()
    assert (kind, more["series"]["round"]) == ("rows", [10])
    assert set(more["series"]) == set(whole["series"])
    (path / "result.json").write_text(json.dumps(row(10) | {"feasible": True}))
    ((kind, whole),) = watch.news()
    assert (kind, whole["state"], len(whole["series"]["round"])) == ("run", "complete", 3)
    shutil.rmtree(path)
    assert list(watch.news()) == [("gone", {"name": "run"})]
    assert list(watch.news()) == []
