"""The run directory: what it holds, that it is whole, and what a failing disk leaves behind."""

from __future__ import annotations

import errno
import itertools
import json
import math
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from fedssca import UserError, load
from fedssca.data import Rows
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import load_config
from fedssca.run.record import RunDirectory
from fedssca.run.versions import versions
from tests.cli_helpers import Shell, files, result, rows, same_run, weights

COLUMNS = {
    "round",
    "objective",
    "train_cost",
    "test_accuracy",
    "norm_sq",
    "constraints",
    "slack",
    "multipliers",
    "bytes_up",
    "bytes_down",
    "seconds",
}


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def numpy_cost(folder: Path, name: str = "w") -> float:
    """The training cost of model.npz, from the layout that the contract states."""
    config = load_config(folder)
    data = load(config.data.name, seed=config.run.seed)
    x, y, w = data.train["x"] * data.scale, data.train["y"], weights(folder, name).astype(float)
    p, j, n = x.shape[1], config.model.hidden, data.classes
    assert w.shape == (j * (p + n),)
    w0, w1 = w[: n * j].reshape(n, j), w[n * j :].reshape(j, p)
    z = x.astype(float) @ w1.T
    scores = (z / (1 + np.exp(-z))) @ w0.T
    shift = scores.max(axis=1)
    log_sum = shift + np.log(np.exp(scores - shift[:, None]).sum(axis=1))
    return float((log_sum - scores[np.arange(len(y)), y]).mean())


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        ("data.name=digits", "algorithm.batch=8"),
        ("data.split=feature", "data.clients=3", "data.sizes=[5, 20, 5]", "run.precision=float64"),
    ],
    ids=["sample", "feature"],
)
def test_a_run_directory_honours_the_contract(
    shell: Shell, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    shell.run(out, *settings)
    names = {"checkpoint/state.npz", "config.toml", "curves.png", "metrics.jsonl", "model.npz"}
    model = {"model/model.json", "model/weights.npz"}
    assert set(files(out)) == names | model | {"problem.json", "result.json"}

    config = load_config(out)
    asked = parse(shell.small.read_text(), settings)
    found = {
        "balance": config.algorithm.balance,
        "multipliers": "corrected",
        "probes": config.algorithm.probes,
    }
    posed = replace(asked.problem, l2=config.problem.l2)
    assert config == replace(asked, problem=posed, algorithm=replace(asked.algorithm, **found))

    kept = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in kept] == [0, 5, 10, 15, 20]
    for row in kept:
        assert set(row) >= COLUMNS
        assert len(row["constraints"]) == len(row["slack"]) == len(row["multipliers"]) == 1
        assert row["constraints"][0] == pytest.approx(row["train_cost"] - 0.3, abs=1e-6)
        assert row["objective"] == pytest.approx(row["norm_sq"])
    probing = kept[0]["bytes_up"]  # the first multipliers are calibrated
    assert probing > 0
    assert kept[4]["bytes_up"] - probing == 2 * (kept[2]["bytes_up"] - probing) > 0
    assert all(a["seconds"] < b["seconds"] for a, b in itertools.pairwise(kept))

    result = json.loads((out / "result.json").read_text())
    assert result["last"] == kept[-1]
    assert set(result) >= COLUMNS
    for name in ("round", "slack", "multipliers", "bytes_up", "bytes_down", "seconds"):
        assert result[name] == kept[-1][name]  # of the run; all else is of the returned model
    assert result["objective"] == result["norm_sq"]
    assert result["constraints"][0] == pytest.approx(result["train_cost"] - 0.3, abs=1e-6)
    assert result["feasible"] == (result["constraints"][0] <= 0)
    assert result["certificate"]["feasible"] == result["feasible"]
    assert result["certificate"]["kkt_residual"] == result["kkt_residual"]
    assert math.isfinite(result["kkt_residual"])
    assert result["versions"] == versions()
    assert set(versions()) == {"python", "fedssca", "jax", "jaxlib", "numpy", "scipy"}

    for name, row in (("w", result), ("w_last", kept[-1])):
        w = weights(out, name)
        assert w.dtype == config.run.precision
        assert w @ w == pytest.approx(row["norm_sq"], rel=1e-5)
        assert numpy_cost(out, name) == pytest.approx(row["train_cost"], rel=2e-6)


@pytest.mark.long
@pytest.mark.parametrize("rounds", [1, 12])
def test_t_rounds_end_at_round_t_minus_1(tmp_path: Path, rounds: int, shell: Shell) -> None:
    shell.run(tmp_path / "out", f"algorithm.rounds={rounds}", "data.clients=2")
    assert rows(tmp_path / "out")[-1]["round"] == rounds - 1
    assert json.loads((tmp_path / "out/result.json").read_text())["round"] == rounds - 1


def test_without_checkpoints(tmp_path: Path, shell: Shell) -> None:
    shell.run(tmp_path / "a", "run.checkpoint_every=0")
    assert list((tmp_path / "a/checkpoint").iterdir()) == []
    shell.run(tmp_path / "b", "run.checkpoint_every=7")
    assert same_run(tmp_path / "a", tmp_path / "b")


def test_one_seed_one_run_and_another_seed_another(tmp_path: Path, shell: Shell) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        shell.run(tmp_path / name, f"run.seed={seed}")
    assert same_run(tmp_path / "a", tmp_path / "b")
    assert not same_run(tmp_path / "a", tmp_path / "c")


def test_the_data_of_a_run_is_found_from_another_folder(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.csv").write_text("a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    monkeypatch.chdir(tmp_path)
    shell.run(tmp_path / "out", "data.path=own.csv", "data.clients=2")
    assert load_config(tmp_path / "out").data.path == str(tmp_path / "own.csv")


def test_rows_pass_over_a_half_written_line(tmp_path: Path) -> None:
    folder = RunDirectory.create(tmp_path / "run", "")
    assert folder.rows() == []
    for number in range(3):
        folder.append({"round": number})
    with open(tmp_path / "run/metrics.jsonl", "ab") as file:
        file.write(b'{"round": 3, "obj\xff')
    assert [row["round"] for row in folder.rows()] == [0, 1, 2]
    assert [row["round"] for row in folder.keep_rows(1)] == [0, 1]
    assert (tmp_path / "run/metrics.jsonl").read_text() == '{"round": 0}\n{"round": 1}\n'


def test_create_refuses_the_traces_of_a_run(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, "")  # an empty folder is welcome
    for name in ("config.toml", "metrics.jsonl", "result.json", "model.npz"):
        other = tmp_path / f"has {name}"
        other.mkdir()
        (other / name).write_text("")
        with pytest.raises(UserError, match="already holds a run"):
            RunDirectory.create(other, "")
        assert [p.name for p in other.iterdir()] == [name]


def test_a_folder_with_other_files_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunDirectory.create(tmp_path, "")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_create_cleans_up_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedssca.run.record.os.fsync", full)
    with pytest.raises(UserError, match=r"cannot write to .*: No space left on device"):
        RunDirectory.create(tmp_path / "a/b", "x")
    assert list(tmp_path.iterdir()) == []


def test_write_replaces_whole_files_or_not_at_all(tmp_path: Path) -> None:
    folder = RunDirectory.create(tmp_path / "run", "")
    folder.write("note", lambda file: file.write(b"old"))

    def fails(file: Any) -> None:
        file.write(b"ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.write("note", fails)
    assert (tmp_path / "run/note").read_bytes() == b"old"
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"checkpoint", "config.toml", "note"}


def test_unreadable_files_are_one_clear_line(tmp_path: Path) -> None:
    folder = RunDirectory.create(tmp_path / "run", "")
    (tmp_path / "run/result.json").write_text("{")
    with pytest.raises(UserError, match=r"result\.json cannot be read"):
        folder.result()
    (tmp_path / "run/config.toml").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"config\.toml cannot be read"):
        _ = folder.config


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 192 kB; skipped where mounting is not permitted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(disk)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not permitted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True, timeout=300)


def test_a_full_disk_keeps_whole_rows_and_can_be_resumed(
    tiny_disk: Path, tmp_path: Path, shell: Shell
) -> None:
    shell.run(tmp_path / "whole")
    filler = tiny_disk / "filler"
    filler.write_bytes(bytes(180 * 1024))
    arguments = ("run", shell.small, "--out", tiny_disk / "run", "--quiet")
    assert "No space left on device; free space" in shell.refused(*arguments)
    assert all(row["round"] in range(21) for row in rows(tiny_disk / "run"))
    assert not [name for name in files(tiny_disk / "run") if name.endswith(".part")]
    filler.unlink()
    assert shell("run", "--resume", tiny_disk / "run", "--quiet").code == 0
    assert same_run(tmp_path / "whole", tiny_disk / "run")


def test_no_room_at_all_leaves_nothing(tiny_disk: Path, shell: Shell) -> None:
    (tiny_disk / "filler").write_bytes(bytes(192 * 1024))
    line = shell.refused("run", shell.small, "--out", tiny_disk / "run", "--quiet")
    assert line.startswith(f"cannot write to {tiny_disk / 'run'}: No space left on device")
    assert [p.name for p in tiny_disk.iterdir()] == ["filler"]


def test_every_clients_own_loss_is_written_down(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shell.run(out, "data.partition=dirichlet", "data.clients=3")
    job = build(load_config(out))
    losses = result(out)["client_losses"]
    assert isinstance(job.clients, Rows)
    for number, loss in enumerate(losses):
        own = Rows.of([job.clients.client(number)])
        row = evaluator_over(job.problem, own, None).row(jax.numpy.asarray(weights(out)))
        assert loss == pytest.approx(row["train_cost"], rel=1e-5)
    sizes = np.array(job.clients.sizes)
    mean = np.dot(losses, sizes) / sizes.sum()
    assert mean == pytest.approx(result(out)["train_cost"], rel=1e-5)


def test_no_losses_of_parties_with_columns(shell: Shell, tmp_path: Path) -> None:
    shell.run(tmp_path / "out", "data.split=feature", "data.clients=2")
    assert "client_losses" not in result(tmp_path / "out")
