"""A run directory as plain data: going, stopped, damaged, hostile."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fedssca.report.gather import MOST_CONSTRAINTS, columns, gather, thin
from tests.run_helpers import made_up, row, train


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "real")


def test_a_finished_run_is_all_there(real: Path) -> None:
    view = gather(real)
    assert view["name"] == "real"
    assert view["state"] == "complete"
    assert view["trouble"] == []
    (limit,) = view["constraints"]
    assert limit == {
        "index": 0,
        "indices": [0],
        "name": "loss",
        "limit": 0.3,
        "quantity": "cost",
        "title": "loss",
        "low": None,
        "high": 0.3,
    }
    series = view["series"]
    assert series["round"] == [0, 5, 10, 15, 20]
    for name in ("train_cost", "test_accuracy", "norm_sq", "bytes_up", "seconds"):
        assert len(series[name]) == 5
        assert None not in series[name]
    assert series["value.0"][-1] + 0.3 == pytest.approx(series["train_cost"][-1], abs=1e-5)
    assert len(series["multiplier.0"]) == 5
    assert len(view["result"]["client_losses"]) == 4
    assert view["settings"]["data.clients"] == "4"
    assert view["settings"]["problem.constraint.0.kind"] == "loss"


def test_a_run_that_goes_on_has_its_whole_rows(tmp_path: Path) -> None:
    path = made_up(tmp_path / "run", done=False)
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row(25))[:40])
    view = gather(path)
    assert view["state"] == "running"
    assert view["series"]["round"] == [0, 5, 10, 15, 20]
    (limit,) = view["constraints"]
    assert limit == {"index": 0, "indices": [0], "name": "loss", "limit": 0.3}
    assert view["result"] is None
    for name in ("metrics.jsonl", "config.toml"):
        os.utime(path / name, (1e9, 1e9))
    assert gather(path)["state"] == "paused"


def test_a_run_without_a_row_or_a_word_about_its_limits(tmp_path: Path) -> None:
    path = made_up(tmp_path / "run", rows=0, done=False)
    assert gather(path)["series"] == {}
    (path / "problem.json").unlink()
    (path / "metrics.jsonl").write_text(json.dumps(row(0)) + "\n")
    (limit,) = gather(path)["constraints"]
    assert limit == {"index": 0, "indices": [0], "name": "constraint 1", "limit": None}


@pytest.mark.parametrize("damage", ["{", "[]", "null", '"x"', "[" * 100_000, "\x00", "\udc80"])
def test_damaged_files_are_said_and_passed_over(tmp_path: Path, damage: str) -> None:
    path = made_up(tmp_path / "run")
    for name in ("result.json", "config.toml", "audit.json", "sites.jsonl", "events.jsonl"):
        (path / name).write_bytes(damage.encode(errors="surrogateescape"))
    with open(path / "metrics.jsonl", "ab") as file:
        file.write(damage.encode(errors="surrogateescape") + b"\n")
    view = gather(path)
    assert len(view["series"]["round"]) == 5
    assert view["result"] is None
    assert any("result.json" in line for line in view["trouble"])
    json.dumps(view, allow_nan=False)


def test_what_is_no_number_is_none(tmp_path: Path) -> None:
    path = made_up(tmp_path / "run", train_cost=float("nan"), norm_sq="<b>", constraints="no")
    view = gather(path)
    assert "train_cost" not in view["series"]
    assert "norm_sq" not in view["series"]
    json.dumps(view, allow_nan=False)


def test_of_many_constraints_the_worst_are_drawn(tmp_path: Path) -> None:
    values = [-1.0] * 90
    values[7], values[23] = 0.3, 0.2
    path = made_up(tmp_path / "run", done=False, constraints=values, multipliers=[0.0] * 90)
    view = gather(path)
    drawn = [entry["index"] for entry in view["constraints"]]
    assert len(drawn) == MOST_CONSTRAINTS
    assert {7, 23} <= set(drawn)
    assert view["more_constraints"] == 90 - MOST_CONSTRAINTS
    assert view["series"]["value.23"] == [0.2] * 5


def test_long_runs_are_thinned_and_keep_their_end() -> None:
    rows = [row(k) for k in range(1001)]
    kept, every = thin(rows, 100)
    assert every == 11
    assert len(kept) <= 102
    assert (kept[0]["round"], kept[-1]["round"]) == (0, 1000)
    assert thin(rows[:50], 100) == (rows[:50], 1)


def test_columns_fill_gaps_with_nothing() -> None:
    rows = [{"round": 0}, {"round": 1, "epsilon": 0.5}]
    assert columns(rows, []) == {"round": [0, 1], "epsilon": [None, 0.5]}


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    path = made_up(tmp_path / "run")
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    (path / "audit.json").symlink_to(tmp_path / "secret.json")
    assert gather(path)["audit"] is None
