"""A submitter wants the server to read or write outside the folder of runs.

It submits a job whose run is called "../../etc" in place of 32 digits, or asks a running job for a
file that belongs to no run. What stops it: a job's fields are checked before one of them becomes
part of a path, and of a run's folder only the files of a run are handed out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedssca.deploy.engine import Answer, JobOrder
from fedssca.deploy.server.job import ServerJob


class NoLink:
    """The job must end before it asks anybody."""

    def ask(self, envelopes: Mapping[str, bytes], timeout: float) -> Mapping[str, Answer]:
        raise AssertionError("the job went on")


@pytest.mark.parametrize(
    "change",
    [
        {"run": "../../etc"},
        {"run": "/tmp/x"},
        {"run": "0" * 31},
        {"run": "0" * 32 + "\n"},
        {"run": 7},
        {"sites": "site-1"},
        {"sites": ["site-1", "site-1"]},
        {"resume": "yes"},
        {"task": "shell"},
        {"config": None},
    ],
)
def test_an_order_of_another_form_touches_nothing(change: dict[str, Any], tmp_path: Path) -> None:
    order = JobOrder("0" * 32, ["site-1"], "")._replace(**change)
    job = ServerJob(order)
    job.command({"taken": True})
    runs = tmp_path / "kit" / "runs"
    runs.mkdir(parents=True)
    job.run(NoLink(), {"site-1"}, runs)
    outcome = job.command({})["outcome"]
    assert outcome["state"] == "failed"
    assert "the job" in outcome["message"]
    assert [path.name for path in tmp_path.rglob("*")] == ["kit", "runs"]


@pytest.mark.parametrize(
    "asked",
    [
        {"file": "../../server.key", "at": 0},
        {"file": "config.toml", "at": -5},
        {"rows_from": "all"},
        {"rows_from": -1},
        {"file": 7},
        {"shell": "ls"},
    ],
)
def test_a_command_of_another_form_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    job = ServerJob(JobOrder("0" * 32, ["site-1"], ""))
    job.folder = tmp_path
    (tmp_path / "config.toml").write_text("secret")
    answer = job.command(asked)
    assert "error" in answer or answer == {"size": -1}
