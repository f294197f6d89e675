"""The time to the first row of the default run against the time that `import jax` takes.

`python -m fedssca.studies.bench.start` begins the default run as `fedssca run` does and ends at its
first row; its whole process is timed, from the start of Python.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedssca.errors import UserError
from fedssca.studies.bench.child import last_line, run_child
from fedssca.studies.bench.timing import Timing, summary

__all__ = ["measure_start"]

PATIENCE = 600.0
CHILDREN = {
    "import jax": ["-c", "import jax"],
    "first row": ["-m", "fedssca.studies.bench.start"],
}


def measure_start(turns: int, tick: Callable[[str], None]) -> dict[str, Any]:
    """Return `start`: seconds to the first row / of `import jax`, medians, programs compiled.

    `start_cold` is the same for the very first run, when nothing is compiled.
    """
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as folder:
        env = os.environ | {"JAX_COMPILATION_CACHE_DIR": folder}
        tick("the very first run")
        cold = _seconds("first row", env)
        runs: dict[str, list[float]] = {name: [] for name in CHILDREN}
        for turn in range(turns):
            for name, own in runs.items():
                tick(f"{name}, turn {turn + 1} of {turns}")
                own.append(_seconds(name, env))
    timings = {name: Timing(tuple(own)) for name, own in runs.items()}
    base = timings["import jax"].median
    return {
        "start": timings["first row"].median / base,
        "start_cold": cold / base,
        "start_seconds": summary(timings),
    }


def _seconds(name: str, env: dict[str, str]) -> float:
    outcome = run_child([sys.executable, *CHILDREN[name]], PATIENCE, env)
    if outcome.code != 0:
        raise UserError(f"bench --only start: {name} failed: {last_line(outcome.err)}")
    return outcome.seconds


def _first_row() -> None:
    from fedssca.run.config import parse
    from fedssca.run.execute import execute
    from fedssca.system import keep_compiled_programs

    keep_compiled_programs()
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as folder:
        execute(parse(""), Path(folder) / "run", on_row=lambda row: os._exit(0))


if __name__ == "__main__":
    _first_row()
