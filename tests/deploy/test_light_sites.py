"""What the processes of an NVFlare site load: one site should cost little memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("nvflare")

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
