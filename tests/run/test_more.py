"""Runs that train until they have converged, and runs that get more rounds."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca import FederatedClassifier
from fedssca.run import execute as runner
from tests.cli_helpers import Shell, files, result, rows, same_run, weights

AUTO = ("algorithm.rounds=auto", "algorithm.max_rounds=100")


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setattr("fedssca.run.stages.FIRST", 20)
    return Shell(tmp_path, monkeypatch, capsys)


def algorithm(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "config.toml").read_text())["algorithm"]


def evaluated(folder: Path) -> list[int]:
    return [row["round"] for row in rows(folder)]


def stopped_at(patch: pytest.MonkeyPatch, shell: Shell, round_: int, *arguments: object) -> None:
    """Press Ctrl-C when the row of this round has been written."""
    append = runner.RunDirectory.append

    def dying(self: runner.RunDirectory, row: dict[str, Any]) -> None:
        append(self, row)
        if row["round"] == round_:
            raise KeyboardInterrupt

    patch.setattr(runner.RunDirectory, "append", dying)
    assert shell("run", *arguments, "--quiet").code == 130
    patch.setattr(runner.RunDirectory, "append", append)


@pytest.mark.long
def test_auto_trains_until_it_has_converged(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"
    shell.run(whole, *AUTO)
    found = result(whole)
    assert (found["converged"], found["feasible"], found["rounds"]) == (True, True, 40)
    assert all("held-out rows" in note for note in found["notes"])
    assert algorithm(whole)["rounds"] == "auto"
    assert evaluated(whole) == [0, 5, 10, 15, 19, 20, 25, 30, 35, 39]

    for round_ in (20, 35):  # before and after the first checkpoint of the second stage
        run = tmp_path / f"run{round_}"
        settings = [part for setting in AUTO for part in ("--set", setting)]
        stopped_at(monkeypatch, shell, round_, shell.small, *settings, "--out", run)
        assert shell("run", "--resume", run, "--quiet").code == 0
        assert same_run(whole, run)

    before = files(whole)  # it ended by itself: a number of rounds more is that number
    assert shell("run", "--resume", whole, "--more", 3, "--quiet").code == 0
    assert algorithm(whole)["rounds"] == 43
    assert evaluated(whole) == [*evaluated(tmp_path / "run35"), 40, 42]
    assert result(whole)["objective"] <= found["objective"]
    assert files(whole)["curves.png"] != before["curves.png"]


def test_auto_ends_at_max_rounds(tmp_path: Path, shell: Shell) -> None:
    run = tmp_path / "run"
    outcome = shell.run(run, "algorithm.rounds=auto", "algorithm.max_rounds=6", options=())
    found = result(run)
    assert (found["converged"], found["rounds"]) == (False, 6)
    end = "training ended at max_rounds = 6 before it had converged"
    assert end in found["notes"]
    assert end in " ".join(outcome.out.split())
    assert shell("run", "--resume", run, "--more", 4, "--quiet").code == 0
    assert (algorithm(run)["rounds"], algorithm(run)["max_rounds"]) == ("auto", 10)
    assert evaluated(run) == [0, 5, 9]


@pytest.mark.long
def test_more_rounds_after_a_finished_run(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    shell.run(short)
    shell.run(long)
    before = files(short)
    first = result(short)
    assert shell("run", "--resume", short, "--more", 14, "--quiet").code == 0
    after = result(short)
    assert algorithm(short) == algorithm(long) | {"rounds": 35}
    assert (after["round"], after["rounds"]) == (34, 35)
    assert evaluated(short) == [0, 5, 10, 15, 20, 25, 30, 34]
    assert files(short)["metrics.jsonl"].startswith(before["metrics.jsonl"])
    assert after["seconds"] > first["seconds"]
    if first["feasible"]:
        assert after["feasible"]
        assert after["objective"] <= first["objective"]
    assert (weights(short) != np.load(long / "model.npz")["w"]).any()
    unchanged = files(short)
    assert "less than 2^31" in shell.refused("run", "--resume", short, "--more", 2**31)
    assert json.loads(shell("run", "--resume", short, "--json").out) == after
    assert files(short) == unchanged

    # stopped before the first checkpoint of the additional rounds, then after it
    stopped_at(monkeypatch, shell, 25, "--resume", long, "--more", 14)
    assert not (long / "result.json").exists()
    stopped_at(monkeypatch, shell, 34, "--resume", long)
    assert shell("run", "--resume", long, "--quiet").code == 0
    assert same_run(short, long)

    # nothing else may change
    config = long / "config.toml"
    config.write_text(config.read_text().replace("rounds = 35", "rounds = 36"))
    for more in ((), ("--more", 1)):
        assert "is not the config" in shell.refused("run", "--resume", long, *more)


def test_more_rounds_for_a_run_that_is_not_finished(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    stopped_at(monkeypatch, shell, 15, shell.small, "--out", run)
    assert shell("run", "--resume", run, "--more", 4, "--quiet").code == 0
    assert algorithm(run)["rounds"] == 25
    assert evaluated(run) == [0, 5, 10, 15, 20, 24]


def test_when_more_rounds_are_refused(tmp_path: Path, shell: Shell) -> None:
    assert "--resume" in shell.refused("run", "--more", 5)
    run = tmp_path / "run"
    shell.run(run, "algorithm.rounds=3", "run.checkpoint_every=0")
    before = files(run)
    for more in (0, -3):
        assert f"--more {more}: " in shell.refused("run", "--resume", run, "--more", more)
    shell.refused("run", "--resume", run, "--more", "x")
    assert "checkpoint_every = 0" in shell.refused("run", "--resume", run, "--more", 5)
    config = run / "config.toml"
    config.write_text(config.read_text() + "\n[privacy]\nclip = 1.0\nepsilon = 3.0\n")
    assert "budget is spent" in shell.refused("run", "--resume", run, "--more", 5)
    config.write_bytes(before["config.toml"])
    (run / "deploy.json").write_text("{}")
    assert "sites" in shell.refused("run", "--resume", run, "--more", 5)
    (run / "deploy.json").unlink()
    assert files(run) == before


def test_tuning_needs_a_number(tmp_path: Path, shell: Shell) -> None:
    shell.small.write_text(shell.small.read_text().replace("rounds = 21", 'rounds = "auto"'))
    line = shell.refused("tune", shell.small, "--trials", 1, "--out", tmp_path / "search")
    assert line.startswith('algorithm.rounds = "auto": ')


def test_the_classifier_trains_until_it_has_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedssca.run.stages.FIRST", 20)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    y = x @ [1.0, -1.0, 0.5] + rng.normal(size=120) > 0
    model = FederatedClassifier("linear", rounds="auto", batch=40, l2=0.1, max_rounds=640)
    found = model.fit(x, y, clients=2).result_
    assert found.converged
    assert int(found.state.round) + 1 in (20, 40, 80, 160, 320, 640)
