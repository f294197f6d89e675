"""Trainings of runs, searches and benchmarks as entries that a page compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedssca.report.live.folder import RunFolder
from fedssca.report.methods import folder_trainings, named_problems, run_training, runs_trainings
from fedssca.run.config import parse, render
from tests.cli_helpers import SMALL
from tests.run_helpers import made_up


def run_of(path: Path, *settings: str, done: bool = True) -> Path:
    made_up(path, done=done)
    (path / "config.toml").write_text(render(parse(SMALL, settings)))
    return path


def write(path: Path, name: str, *lines: dict[str, Any]) -> Path:
    path.mkdir(exist_ok=True)
    (path / name).write_text("".join(json.dumps(line) + "\n" for line in lines) + "junk\n")
    return path


def test_runs_of_other_methods_have_the_same_problem(tmp_path: Path) -> None:
    ssca = run_training(run_of(tmp_path / "a", "algorithm.batch=7", "run.seed=3"), "a")
    penalty = run_training(run_of(tmp_path / "b", "algorithm.name=penalty"), "b")
    tighter = run_training(run_of(tmp_path / "c", "problem.constraint=[]"), "c")
    assert ssca
    assert penalty
    assert tighter
    assert ssca["problem"] == penalty["problem"] != tighter["problem"]
    assert ssca["without"] == tighter["without"]
    assert (ssca["limited"], tighter["limited"]) == (True, False)
    assert (ssca["method"], penalty["method"], ssca["seed"]) == ("ssca", "penalty", 3)
    assert ssca["title"] == "breast-cancer · smallest network · loss ≤ 0.3"
    assert (ssca["state"], ssca["price"], ssca["bytes"]) == ("kept", None, 6000)


def test_the_rule_of_ssca_is_a_part_of_its_name_and_unfinished_runs_say_so(tmp_path: Path) -> None:
    path = run_of(tmp_path / "a", 'algorithm.multipliers="steered"', done=False)
    found = run_training(path, "a")
    assert found
    assert (found["method"], found["state"]) == ("ssca, steered", "unfinished")
    (path / "config.toml").write_text("[[[")
    assert run_training(path, "a") is None
    assert runs_trainings([path], ["a"]) == []


def test_problems_of_the_same_title_say_in_what_they_differ(tmp_path: Path) -> None:
    paths = [run_of(tmp_path / "a"), run_of(tmp_path / "b", "data.clients=2")]
    first, second = runs_trainings(paths, ["a", "b"])
    assert first["title"].endswith(" · clients 4")
    assert second["title"].endswith(" · clients 2")
    assert "settings" not in first


def test_settings_of_certificates_belong_to_the_limits(tmp_path: Path) -> None:
    """So a certified run has the price of its limits, and is told apart from other promises."""
    certified = ("problem.confidence=0.9", "problem.uncertified=stop", "problem.clip=3")
    paths = [
        run_of(tmp_path / "a", *certified, "problem.certify=each_site"),
        run_of(tmp_path / "b", *certified),
        run_of(tmp_path / "c", "problem.constraint=[]"),
    ]
    each, pooled, free = runs_trainings(paths, ["a", "b", "c"])
    assert each["without"] == pooled["without"] == free["without"]
    assert each["title"].endswith(" · certify each_site")
    assert pooled["title"].endswith(" · certify pooled")


def test_trials_of_a_search(tmp_path: Path) -> None:
    trial = {"method": "ssca", "number": 0, "settings": {}, "seconds": 2.0}
    path = write(
        tmp_path / "found",
        "trials.jsonl",
        trial | {"violation": 0, "objective": 1.5},
        trial | {"violation": 0.25, "objective": 1.0},
        trial | {"violation": None, "objective": None, "diverged": "at round 3"},
    )
    kept, broken, failed = folder_trainings(path)
    assert [each["state"] for each in (kept, broken, failed)] == ["kept", "broken", "failed"]
    assert (kept["title"], kept["objective"], broken["over"]) == ("trials in found", 1.5, 0.25)
    (path / "tune.json").write_text(json.dumps({"config": render(parse(SMALL))}))
    assert folder_trainings(path)[0]["title"].startswith("breast-cancer · smallest network")


def test_records_of_a_benchmark_with_best_known_values(tmp_path: Path) -> None:
    record = {"case": "digits_20", "seed": 0, "seconds": 1, "prices": [0.5, None]}
    path = write(
        tmp_path / "zoo",
        "results.jsonl",
        record | {"method": "default", "kept": True, "objective": 2, "constraints": [-0.1]},
        record | {"method": "penalty", "kept": False, "objective": 1, "constraints": [0.5]},
        {"case": "digits_20", "method": "sgd", "failed": "ValueError"},
    )
    (path / "references.json").write_text(json.dumps({"digits_20": {"objective": 1.9}, "x": 3}))
    default, penalty, sgd = folder_trainings(path)
    assert (default["title"], default["best"], default["price"]) == ("digits_20", 1.9, 0.5)
    assert (penalty["state"], penalty["over"], sgd["state"]) == ("broken", 0.5, "failed")
    assert default["problem"] == penalty["problem"] == "zoo/digits_20"


def test_a_folder_is_read_again_when_its_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of(tmp_path / "a")
    write(tmp_path / "zoo", "results.jsonl", {"case": "x", "method": "m", "kept": True})
    (tmp_path / "nothing").mkdir()
    folder = RunFolder(tmp_path)
    first = folder.trainings()
    assert [each["run"] for each in first] == ["a", None]
    with monkeypatch.context() as patch:
        patch.setattr("fedssca.report.live.folder.run_training", None)
        assert folder.trainings() == first
    (tmp_path / "a/result.json").unlink()
    assert folder.trainings()[0]["state"] == "unfinished"
    assert named_problems([]) == []
