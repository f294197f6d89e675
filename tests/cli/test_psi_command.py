"""`fedssca psi`: files in, aligned files out."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from fedssca.privacy.psi import protocol as psi
from tests.cli_helpers import Shell, process


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, monkeypatch, capsys)


def write(name: str, ids: list[object], column: str = "id") -> str:
    Path(name).write_text(f"{column},v\n" + "".join(f"{each},{name}-{each}\n" for each in ids))
    return name


def test_files_in_one_place(shell: Shell) -> None:
    files = [write("a.csv", [3, 1, 2]), write("b.csv", [9, 2, 3], "pid"), write("c.csv", [2, 3, 4])]
    ids = ("--id", "id", "--id", "pid", "--id", "id")
    outcome = shell("psi", *files, *ids, "--out", "out", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    said = json.loads(outcome.out)
    assert (said["state"], said["common"]) == ("done", 2)
    assert said["parties"]["b.csv"]["left_out"] == 1
    assert Path("out/a.csv").read_text() == "id,v\n2,a.csv-2\n3,a.csv-3\n"
    assert Path("out/b.csv").read_text() == "pid,v\n2,b.csv-2\n3,b.csv-3\n"
    assert Path("out/b.rows.csv").read_text() == "part,row,id\nrows,2,2\nrows,3,3\n"
    outcome = shell("psi", *files, *ids, "--out", "two")
    assert "2 rows are common to all" in outcome.out
    outcome = shell("psi", *files, *ids, "--out", "three", "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_files_of_the_same_name_are_numbered(shell: Shell) -> None:
    for folder in ("x", "y"):
        Path(folder).mkdir()
    files = [write("x/a.csv", [1, 2]), write("y/a.csv", [2, 3])]
    assert shell("psi", *files, "--id", "id").code == 0
    assert sorted(p.name for p in Path("aligned").glob("*a.csv")) == ["1-a.csv", "2-a.csv"]


def test_bad_input_is_one_line(shell: Shell) -> None:
    a, b = write("a.csv", [1, 2]), write("b.csv", ["x1", "x2"])
    same = write("same.csv", [1, 1])
    for arguments, said in (
        ((a, "--id", "id"), "name two files or more, or one file with --meet FOLDER"),
        ((a, "none.csv", "--id", "id"), "none.csv is not there"),
        ((a, b, "--id", "id"), "the ids of a.csv are whole numbers such as 7, those of b.csv text"),
        ((a, same, "--id", "id"), "same.csv: the id '1' of row 1 occurs again in row 2"),
        ((a, write("d.csv", ["1.0"]), "--id", "id"), "d.csv, row 1: the id '1.0' is a decimal"),
        ((a, write("c.csv", [8]), "--id", "id"), "no id of the rows is at all parties"),
        ((a, b), "a.csv has no column 'ids'"),
        ((a, b, a, "--id", "id", "--id", "id"), "--id was given 2 times for 3 files"),
        ((a, b, a, "--id", "id"), "a file is named twice"),
        ((a, b, "--meet", "."), "--meet takes one file"),
        ((a, b, "--me", "lab"), "--me and --with go with --meet"),
        ((a, "--id", "id", "--meet", "no", "--me", "a", "--with", "b"), "no is not a folder"),
        ((a, "--id", "id", "--meet", ".", "--me", "a"), "--with names the other parties"),
        ((a, "--id", "id", "--meet", ".", "--me", "../a", "--with", "b"), "party '../a': use"),
        ((a, write("e.csv", [2]), "--id", "id", "--out", "."), "a.csv is already there"),
    ):
        assert said in shell.refused("psi", *arguments)
    assert not Path("aligned/a.csv").exists()


def test_each_party_at_its_place(shell: Shell) -> None:
    Path("shared").mkdir()
    write("a.csv", [3, 1, 2]), write("b.csv", [9, 2, 3])

    def side(me: str, other: str, wait: str) -> dict[str, object]:
        common = ("--id", "id", "--meet", "shared", "--out", f"out-{me}", "--json", "--wait", wait)
        outcome = shell("psi", f"{me}.csv", "--me", me, "--with", other, *common)
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)

    assert side("a", "b", "0")["missing"] == ["b.0.psi"]
    line = shell.refused(
        *("psi", "a.csv", "--me", "a", "--with", "b", "--id", "id"),
        *("--meet", "shared", "--out", "out-a", "--wait", "0.01"),
    )
    assert line.startswith("b.0.psi did not come to shared")
    assert side("b", "a", "0")["missing"] == ["b.1.psi"]
    one, two = side("a", "b", "60"), side("b", "a", "60")
    assert one["code"] == two["code"]
    assert one["common"] == two["common"] == 2
    assert Path("out-a/a.csv").read_text() == "id,v\n2,a.csv-2\n3,a.csv-3\n"
    assert Path("out-b/b.csv").read_text() == "id,v\n2,b.csv-2\n3,b.csv-3\n"
    assert not list(Path().glob("out-*/*.secret"))


def test_ctrl_c_while_it_works(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write("a.csv", [1, 2]), write("b.csv", [2, 3])]

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(psi, "common_positions", interrupted)
    outcome = shell("psi", *files, "--id", "id")
    assert (outcome.code, outcome.err) == (130, "stopped: nothing was written\n")
    assert not Path("aligned").exists()


def test_ctrl_c_while_it_waits(shell: Shell) -> None:
    Path("shared").mkdir()
    write("a.csv", [1, 2])
    command = ("psi", "a.csv", "--id", "id", "--meet", "shared", "--me", "a", "--with", "b")
    child = process(*command, cwd=shell.folder)
    while child.poll() is None and not Path("shared/a.0.psi").exists():
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert (child.returncode, out, err) == (130, "", "stopped; the same command continues\n")
    assert shell(*command, "--wait", "0").out.startswith("waiting for b.0.psi")
