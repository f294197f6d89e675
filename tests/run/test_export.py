"""Runs in TensorBoard and MLflow: written by us, read back with their own readers."""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from fedssca.run.rows import flat
from fedssca.system import pip_install
from tests.cli_helpers import Shell, result, rows


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def board(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard would show: the points of every scalar."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seen = reader.EventAccumulator(str(folder))
    seen.Reload()
    return {tag: [(e.step, e.value) for e in seen.Scalars(tag)] for tag in seen.Tags()["scalars"]}


@pytest.mark.long
def test_a_run_writes_event_files_while_it_trains(shell: Shell) -> None:
    pytest.importorskip("tensorboard")
    out = shell.folder / "one"
    shell.run(out, options=("--quiet", "--tensorboard", str(shell.folder / "board")))
    seen = board(shell.folder / "board" / "one")
    for name in ("objective", "train_cost", "bytes_up"):
        assert seen[name] == [(row["round"], pytest.approx(row[name])) for row in rows(out)]
    assert seen["constraint/loss"] == [
        (row["round"], pytest.approx(row["constraints"][0], abs=1e-6)) for row in rows(out)
    ]
    last = result(out)
    assert seen["returned/train_cost"] == [(20, pytest.approx(last["train_cost"]))]
    assert seen["returned/constraint/loss"][0][1] == pytest.approx(last["constraints"][0], abs=1e-6)

    told = shell("export", out, "--tensorboard", shell.folder / "board")
    assert "one: 5 rows" in told.out
    assert board(shell.folder / "board" / "one") == seen  # the earlier points are replaced


@pytest.mark.long
def test_a_run_logs_to_mlflow(shell: Shell) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("alembic")
    uri = f"sqlite:///{shell.folder / 'mlflow.db'}"
    out = shell.folder / "one"
    shell.run(out, options=("--quiet", "--mlflow", uri))
    assert json.loads(shell("export", out, "--mlflow", uri, "--json").out) == {
        "rows": {str(out): 5}
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own, about SQLAlchemy
        client = tracking.MlflowClient(tracking_uri=uri)
        found = client.search_runs([client.get_experiment_by_name("fedssca").experiment_id])
        assert len(found) == 2
        for run in found:
            assert run.info.run_name == "one"
            assert run.info.status == "FINISHED"
            assert run.data.params["algorithm.batch"] == "5"
            points = client.get_metric_history(run.info.run_id, "train_cost")
            assert [(p.step, p.value) for p in points] == [
                (row["round"], row["train_cost"]) for row in rows(out)
            ]
            assert run.data.metrics["returned/train_cost"] == result(out)["train_cost"]
            assert "constraint/loss" in run.data.metrics


def test_bad_places_are_one_line_and_nothing_is_left(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shell.folder / "out"
    assert "--tensorboard DIR or --mlflow URI" in shell.refused("export", out)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "fedssca.run.export.trackers.find_spec",
        lambda name: None if name == "mlflow" else find(name),
    )
    said = shell.refused("run", shell.small, "--out", out, "--mlflow", "sqlite:///x.db")
    assert said.startswith(f"--mlflow needs mlflow: {pip_install('mlflow')}")
    assert not out.exists()


def test_bad_addresses_are_one_line(shell: Shell) -> None:
    out = shell.folder / "out"
    if importlib.util.find_spec("tensorboard"):
        said = shell.refused("run", shell.small, "--out", out, "--tensorboard", "/proc/none")
        assert "cannot write to /proc/none/out" in said
    if importlib.util.find_spec("mlflow"):
        said = shell.refused("run", shell.small, "--out", out, "--mlflow", "nonsense://x")
        assert "nonsense://x" in said
        assert "sqlite:///mlflow.db" in said
    assert not out.exists()


def test_a_place_that_fails_does_not_stop_the_run(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer").EventFileWriter
    add, told = writer.add_event, []

    def full(self: Any, event: Any) -> None:
        told.append(event)
        if len(told) == 3:
            raise OSError(28, os.strerror(28))
        add(self, event)

    monkeypatch.setattr(writer, "add_event", full)
    out = shell.folder / "one"
    outcome = shell("run", shell.small, "--out", out, "--tensorboard", shell.folder / "board")
    assert outcome.code == 0
    assert (out / "result.json").exists()
    assert len(told) == 3
    said = " ".join(outcome.err.split())
    assert "No space left on device" in said
    assert "later: fedssca export" in said


def test_rows_are_spread_out_by_name() -> None:
    row = {"round": 3, "constraints": [0.1, 0.2, 0.3], "multipliers": [1.0, 2.0, 3.0], "sites": 2}
    assert flat(row, ["fnr", "loss", "fnr"]) == {
        "round": 3,
        "constraint/fnr": 0.1,
        "constraint/loss": 0.2,
        "constraint/fnr_3": 0.3,
        "multiplier/fnr": 1.0,
        "multiplier/loss": 2.0,
        "multiplier/fnr_3": 3.0,
        "sites": 2,
    }
    assert flat({"constraints": [0.5]}, [], "_") == {"constraint_1": 0.5}
