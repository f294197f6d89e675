"""What is kept of runs that a page has started and that left no run directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedssca import UserError
from fedssca.report.live.folder import RunFolder
from fedssca.report.live.processes import RunProcesses
from fedssca.report.live.server import LiveContext, forget, list_runs, resume
from tests.run_helpers import made_up

FAILED = {"message": "the batch is too large", "key": "algorithm.batch"}


@pytest.fixture
def context(tmp_path: Path) -> LiveContext:
    """A folder in which the run "early" has failed before it had a run directory."""
    processes = RunProcesses(tmp_path)
    records = tmp_path / ".page"
    records.mkdir()
    lock = processes._record("early", "lock")
    lock.write_text(json.dumps({"name": "early", "pid": 1}))
    lock.with_suffix(".toml").write_text("[algorithm]\nbatch = 9999\n")
    lock.with_suffix(".error").write_text(json.dumps(FAILED))
    return LiveContext(RunFolder(tmp_path), processes, lambda: False)


def test_a_failed_run_is_listed_until_it_is_forgotten(context: LiveContext) -> None:
    (run,) = list_runs(context, None)["runs"]  # type: ignore[arg-type]
    assert (run["name"], run["state"], run["error"]) == ("early", "failed", FAILED["message"])
    assert context.processes.settings("early") == "[algorithm]\nbatch = 9999\n"
    forget(context, {"name": "early"})
    assert list_runs(context, None)["runs"] == []  # type: ignore[arg-type]
    assert context.processes.settings("early") is None


def test_a_run_with_a_folder_is_not_forgotten(context: LiveContext, tmp_path: Path) -> None:
    made_up(tmp_path / "whole")
    with pytest.raises(UserError, match="has a folder"):
        forget(context, {"name": "whole"})


def test_a_deployed_run_needs_a_kit(context: LiveContext, tmp_path: Path) -> None:
    path = made_up(tmp_path / "joint", done=False)
    (path / "deploy.json").write_text("{}")
    context.processes._record("joint", "lock").write_text(json.dumps({"name": "joint", "pid": 1}))
    for kit in ("", "nowhere"):
        with pytest.raises(UserError, match="the kit of the submitter"):
            resume(context, {"name": "joint", "kit": kit})


def test_a_deployed_run_is_submitted_again_with_its_kit(
    context: LiveContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made_up(tmp_path / "joint", done=False)
    (path / "deploy.json").write_text("{}")
    context.processes._record("joint", "lock").write_text(json.dumps({"name": "joint", "pid": 1}))
    kit = tmp_path / "kit"
    kit.mkdir()
    started: list[list[str]] = []
    monkeypatch.setattr(context.processes, "_launch", lambda name, words: started.append(words))
    resume(context, {"name": "joint", "kit": str(kit)})
    assert started == [["deploy", "submit", "--kit", str(kit), "--resume", str(path)]]
