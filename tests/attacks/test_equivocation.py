"""A server that lies in every way it can express, with colluding clients: random schedules.

Who attacks: the server, with as many clients as the rules allow (`Rules.colluders`). What it wants:
a message, or the sum of fewer clients than promised. What stops it: the agreement of witnesses, and
the checks of every client. The benchmark plays 20,000 schedules; this test plays a few of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
ROOT = Path(__file__).parents[2]


def test_no_schedule_opens_too_much() -> None:
    script = ROOT / "benchmarks" / "secure_sum_faults.py"
    done = subprocess.run(
        [sys.executable, str(script), "--schedules", "120", "--seed", "7"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:])
    counts = {name: int(count.replace(",", "")) for name, count in rows}
    assert counts["schedules"] == 120
    assert counts["sums that were exact"] > 20
    assert counts["groups whose sum could be opened"] > 20
    for never in ("wrong sums", "single messages opened", "groups that were smaller than promised"):
        assert counts[never] == 0
    assert counts["sums of which two groups could be opened"] == 0
