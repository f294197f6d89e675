"""`fedssca reproduce` as a user meets it: real processes, Ctrl-C, a worker that dies."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fedssca.errors import UserError
from fedssca.studies.reproduce import session
from fedssca.studies.reproduce.cache import Cache
from fedssca.studies.reproduce.experiment import read
from fedssca.studies.reproduce.plan import plan
from fedssca.studies.reproduce.workers import run_all
from tests.cli_helpers import Shell, files, one_line, process
from tests.studies.reproduce.reproduce_helpers import TINY, tiny

LONG = TINY.replace("rounds = 12", "rounds = 400000")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def test_from_nothing_to_figures_and_again_from_the_cache(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel, out = tiny(tmp_path), tmp_path / "out"
    first = shell("reproduce", panel, "--runs", 2, "--jobs", 2, "--out", out)
    assert first.code == 0, first.err
    assert "Algorithm 1 is faster." in first.out
    before = files(out)
    assert {f"tiny.{e}" for e in ("csv", "json", "md", "png", "svg")} | {"index.md"} <= set(before)
    assert sum(name.startswith("cache/") for name in before) == 4

    def never(*_: object) -> None:
        raise AssertionError("nothing is left to be computed")

    monkeypatch.setattr(session, "run_all", never)
    again = shell("reproduce", panel, "--runs", 2, "--out", out, "--resume", "--json")
    assert again.code == 0, again.err
    (about,) = json.loads(again.out)["panels"]
    assert about["seeds"] == [0, 1]
    assert about["verdicts"][0]["verdict"] in ("holds", "does not hold")
    assert files(out) == before
    held = shell("reproduce", panel, "--runs", 3, "--out", out, "--cached")
    assert held.code == 0, held.err
    assert "tiny is left as it is: 4 of its 6 runs are in the cache" in held.err
    assert files(out) == before
    both = shell.refused("reproduce", panel, "--out", out, "--cached", "--tuned")
    assert "--cached trains nothing, --tuned does: leave out one of them" in both
    other = tiny(tmp_path, 'title = "t"\nkind = "trajectory"\ncurves = ["tiny"]\n', "other")
    assert shell("reproduce", other, "--runs", 1, "--out", out, "--quiet").code == 0
    assert (out / "index.md").read_text().count("## ") == 2

    monkeypatch.setattr(session, "fingerprint", lambda: "newer")
    old = shell.refused("reproduce", panel, "--runs", 2, "--out", out, "--resume")
    assert old.endswith("only 4 of another version of the code: leave out --resume")
    monkeypatch.setattr(session, "run_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    newer = shell("reproduce", panel, "--runs", 2, "--out", out)
    assert newer.code == 130
    assert "4 cached runs are of another version of the code: computed again" in newer.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("fig1z",), "no figure is named 'fig1z': known are fig1a"),
        (("fig1a", "--runs", "0"), "--runs 0: it must be at least 1"),
        (("fig1a", "--jobs", "0"), "--jobs 0: it must be at least 1"),
        (("fig1a", "--data", "nowhere"), "fetch it with: fedssca data get mnist"),
        (("tiny.toml", "--out", "small.toml/out"), "cannot write to small.toml/out"),
        (("tiny.toml", "--cache", "small.toml/c"), "cannot write to small.toml/c"),
        (("tiny.toml", "--resume"), "--resume: runs/reproduce/cache holds no run of these"),
        (("absent.toml",), "cannot read absent.toml"),
        (("tiny.toml", "./tiny.toml"), "two of the figures are named 'tiny'"),
        (("bad.toml",), "bad.toml: unknown key 'titel'"),
        ((), "Missing argument"),
    ],
)
def test_bad_input_is_one_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], line: str
) -> None:
    monkeypatch.chdir(shell.folder)
    tiny(shell.folder)
    tiny(shell.folder, TINY.replace("title", "titel"), "bad")
    assert line in shell.refused("reproduce", *arguments)
    assert not (shell.folder / "runs").exists()


def test_bad_input_that_only_a_run_finds_is_one_line(tmp_path: Path, shell: Shell) -> None:
    panel = tiny(tmp_path, TINY.replace("batch = 20", "batch = 20000"))
    outcome = shell("reproduce", panel, "--runs", 1, "--jobs", 1, "--out", tmp_path / "out", "-q")
    assert outcome.code == 2
    assert one_line(outcome.err).startswith("SGD, B=20: ")


def started(cache: Path, count: int = 1) -> None:
    """Wait for finished runs."""
    end = time.monotonic() + 600
    while len(list(cache.glob("*.json"))) < count:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, shell: Shell) -> None:
    slow = 'set.algorithm = {name = "sgd", batch = 20, rounds = 3000000}'
    text = TINY.replace('set.algorithm = {name = "sgd", batch = 20}', slow)
    panel, out = tiny(tmp_path, text), tmp_path / "out"
    arguments = ("reproduce", panel, "--runs", 1, "--jobs", 2, "--out", out)
    child = process(*arguments, start_new_session=True)
    try:
        started(out / "cache")
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        told = child.communicate(timeout=300)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 130, told
    assert told[1].splitlines()[-1] == (
        f"stopped; finished runs are in {out}/cache: the same command continues"
    )
    assert "Traceback" not in told[1]
    kept = files(out / "cache")
    assert len(kept) == 1
    tiny(tmp_path)
    resumed = shell(*arguments, "--resume", "--quiet")
    assert resumed.code == 0, resumed.err
    assert kept.items() < files(out / "cache").items()


def workers() -> list[int]:
    """The worker processes of this one."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    lines = {int(pid): Path(f"/proc/{pid}/cmdline") for pid in children}
    return [pid for pid, line in lines.items() if b"spawn_main" in line.read_bytes()]


def test_a_worker_that_is_killed_ends_the_command(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", "code")
    cache.create()
    items = plan([read(str(tiny(tmp_path, LONG)))], 1, cache)
    killed: list[int] = []

    def kill() -> None:
        while len(killed) < 2:
            killed[:] = workers()
            time.sleep(0.05)
        os.kill(killed[0], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(UserError, match=r"a worker process ended \(exit code -9\).*same command"):
        run_all(items, cache, 2, lambda *_: None, lambda item: None)
    assert len(killed) == 2
    for pid in killed:
        assert not Path(f"/proc/{pid}").exists()
