"""What the processes of an NVFlare site load, and when they end: a site should cost little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare")

from fedssca.deploy.engines.nvflare.job_process import ENGINE, OURS

CODE = """
import sys
{code}
print([name for name in ("jax", "scipy", "torch", "sklearn", "pandas") if name in sys.modules])
"""
WATCHER = """
import nvflare.private.fed.app.client.client_train
import fedssca.deploy.engines.nvflare.__main__
from fedssca.deploy.engines.nvflare.kit import LAUNCHER
from nvflare.fuel.utils.class_loader import load_class
load_class(LAUNCHER)
"""
JOB = """
from fedssca.deploy.engines.nvflare.job import JobSite
from nvflare.fuel.utils.import_utils import optional_import
JobSite()
assert not optional_import("nvflare.app_opt.pt.decomposers", name="TensorDecomposer")[1]
"""

ENDLESS = """
import time
print("begun", flush=True)
while True:
    time.sleep(0.1)
"""
STARTS = "import subprocess, sys; subprocess.run([sys.executable, '-m', sys.argv[1]])"


def loaded(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE.format(code=code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_the_process_that_waits_for_jobs_computes_nothing() -> None:
    assert loaded(WATCHER) == "[]"


def test_the_process_of_a_job_does_not_load_pytorch() -> None:
    assert "torch" not in loaded(JOB)


def test_the_process_of_a_job_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """The engine's own part of it, here one that never ends, has loaded nothing of ours yet."""
    *rooms, name = ENGINE.split(".")
    folder = tmp_path.joinpath(*rooms)
    folder.mkdir(parents=True)
    (folder / f"{name}.py").write_text(ENDLESS)
    for depth in range(len(rooms)):
        tmp_path.joinpath(*rooms[: depth + 1], "__init__.py").touch()
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, OURS],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "begun\n"
        (started,) = psutil.Process(starter.pid).children()
        starter.kill()
        assert psutil.wait_procs([started], timeout=120)[0] == [started]
