"""A run that was stopped, however it was stopped, ends as the unbroken run: bit for bit."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli_helpers import SMALL, Shell, files, process, rows, same_run

# many rounds, so that a signal sent at the first checkpoint finds the run under way
LONG = ("algorithm.rounds=4001", "run.evaluate_every=200", "run.checkpoint_every=100")


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def wait_for(condition: Callable[[], bool], child: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end
        time.sleep(0.002)


def stop_in_the_middle(folder: Path, sign: signal.Signals) -> tuple[int, str, str]:
    """Start the long run in `folder`/run and stop it after some checkpoints."""
    (folder / "small.toml").write_text(SMALL)
    settings = [part for setting in LONG for part in ("--set", setting)]
    run, state = folder / "run", folder / "run/checkpoint/state.npz"
    child = process("run", folder / "small.toml", *settings, "--out", run, "--quiet")
    try:
        wait_for(lambda: state.exists() and len(rows(run)) >= 2, child)
    except json.JSONDecodeError:  # a row is being written: the run is under way
        pass
    finally:
        child.send_signal(sign)
        out, err = child.communicate(timeout=300)
    assert not (run / "result.json").exists(), "the run was over before the signal"
    return child.returncode, out, err


def test_kill_and_interrupt(tmp_path: Path, shell: Shell) -> None:
    shell.run(tmp_path / "whole", *LONG)
    for name, sign in (("killed", signal.SIGKILL), ("stopped", signal.SIGINT)):
        (tmp_path / name).mkdir()
        code, out, err = stop_in_the_middle(tmp_path / name, sign)
        run = tmp_path / name / "run"
        assert out == ""
        if sign == signal.SIGINT:
            assert code == 130
            assert err == f"stopped; continue with: fedssca run --resume {run}\n"
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"round": 99999, "objec')  # as if the power had failed in a row
        resumed = shell("run", "--resume", run, "--json")
        assert resumed.code == 0, resumed.err
        assert json.loads(resumed.out)["round"] == 4000
        assert same_run(tmp_path / "whole", run)
        assert set(files(run)) == set(files(tmp_path / "whole"))


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("run.checkpoint_every=7", "run.evaluate_every=3"),
        ("run.checkpoint_every=0",),
        ("run.runtime=local", "data.clients=2"),
        ("data.split=feature", "run.precision=float64"),
    ],
    ids=["plain", "odd", "none", "local", "feature"],
)
def test_resume_from_every_checkpoint(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...]
) -> None:
    from fedssca.run import execute as runner

    shell.run(tmp_path / "whole", *settings)
    stops = 3 if not settings else 1
    append = runner.RunDirectory.append
    for stop in range(1, stops + 1):
        run, written = tmp_path / f"run{stop}", 0

        def dying(self: runner.RunDirectory, row: dict[str, object]) -> None:
            nonlocal written
            append(self, row)
            written += 1
            if written == stop + 1:  # noqa: B023
                raise KeyboardInterrupt

        monkeypatch.setattr(runner.RunDirectory, "append", dying)
        extra = [part for setting in settings for part in ("--set", setting)]
        outcome = shell("run", shell.small, *extra, "--out", run)
        assert outcome.code == 130
        assert f"continue with: fedssca run --resume {run}\n" in outcome.err
        monkeypatch.setattr(runner.RunDirectory, "append", append)
        assert shell("run", "--resume", run, "--quiet").code == 0
        assert same_run(tmp_path / "whole", run)
        before, after = (
            [json.loads(line)["seconds"] for line in (p / "metrics.jsonl").read_text().splitlines()]
            for p in (tmp_path / "whole", run)
        )
        assert len(before) == len(after)
        assert after == sorted(after)


def test_what_else_resume_does(tmp_path: Path, shell: Shell) -> None:
    run = tmp_path / "run"
    shell.run(run)
    before, times = files(run), {p: p.stat().st_mtime_ns for p in run.rglob("*")}

    shown = shell("run", "--resume", run)  # a complete run: its result again, nothing changes
    assert shown.code == 0
    assert "train cost" in shown.out
    assert json.loads(shell("run", "--resume", run, "--json").out) == json.loads(
        before["result.json"]
    )
    assert files(run) == before
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == times

    config = run / "config.toml"  # another config, complete or not
    config.write_text(config.read_text().replace("rounds = 21", "rounds = 31"))
    assert "is not the config this run was made with" in shell.refused("run", "--resume", run)
    (run / "result.json").unlink()
    changed = files(run)
    assert "is not the config this run was made with" in shell.refused("run", "--resume", run)
    assert files(run) == changed
    config.write_bytes(before["config.toml"])

    state = run / "checkpoint/state.npz"  # a corrupt checkpoint
    for content in (b"", b"junk", before["checkpoint/state.npz"][:-300], flipped(state)):
        state.write_bytes(content)
        line = shell.refused("run", "--resume", run, "--quiet")
        assert "cannot be read" in line
        assert "delete it to start the run over" in line
    np.savez(state, config="x")
    assert "is not the config" in shell.refused("run", "--resume", run, "--quiet")

    state.write_bytes(before["checkpoint/state.npz"])  # killed between the last row and the result
    assert shell("run", "--resume", run, "--quiet").code == 0
    assert rows(run) == [
        {k: v for k, v in json.loads(line).items() if k != "seconds"}
        for line in before["metrics.jsonl"].splitlines()
    ]
    assert files(run)["model.npz"] == before["model.npz"]
    assert json.loads(files(run)["result.json"]) == json.loads(before["result.json"])

    for name in ("checkpoint/state.npz", "result.json", "model.npz", "metrics.jsonl"):
        (run / name).unlink()  # killed before the first checkpoint: the run starts over
    assert shell("run", "--resume", run, "--quiet").code == 0
    assert files(run)["model.npz"] == before["model.npz"]

    config.write_text("[algorithm")
    assert "config.toml is not valid TOML" in shell.refused("run", "--resume", run)


def flipped(path: Path) -> bytes:
    """The file with one bit changed in the middle of its largest array."""
    content = bytearray(path.read_bytes())
    content[content.index(b"leaf1.npy") + 200] ^= 1
    return bytes(content)
