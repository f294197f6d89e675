"""The test suite's own promise: no process outlives its test, nor a killed pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.leftovers import MARK, Leftovers, marked

ORPHAN = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)"


@pytest.mark.parametrize("failed", [False, True])
def test_an_orphan_is_killed(leftovers: Leftovers, failed: bool) -> None:
    """It is found although its parent has ended; after a failed test it is no second error."""
    before = leftovers.running()
    if failed:
        with leftovers.none_stays(lambda: True):
            subprocess.run([sys.executable, "-c", ORPHAN], check=True)
    else:
        with (
            pytest.raises(AssertionError, match=r"still running:\n  .*: sleep 1000"),
            leftovers.none_stays(lambda: False, grace=0),
        ):
            subprocess.run([sys.executable, "-c", ORPHAN], check=True)
    assert leftovers.running() == before


def test_a_killed_session_leaves_nothing(tmp_path: Path) -> None:
    session = f"""
import os, subprocess, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from tests.leftovers import MARK, Leftovers
Leftovers()
subprocess.run([sys.executable, "-c", {ORPHAN!r}], check=True)
print(os.environ[MARK], flush=True)
sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", session], **pipes) as process:
        value = process.stdout.readline().strip()
        assert marked(value)
        assert value != os.environ[MARK]
        process.send_signal(signal.SIGKILL)
    while marked(value):
        time.sleep(0.01)
