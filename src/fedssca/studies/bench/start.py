"""The time to the first rows of the default run against the time that `import jax` takes.

`python -m fedssca.studies.bench.start ROWS` begins the default run as `fedssca run` does and ends
after so many rows; its whole process is timed, from the start of Python. The first row is that of
the first parameters. The rounds themselves are compiled, or read, on the way to the second one.
"""

from __future__ import annotations

import compileall
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

PACKAGE = Path(__file__).parents[2]
PATIENCE = 600.0
CHILDREN = {
    "import jax": ["-c", "import jax"],
    "first row": ["-m", "fedssca.studies.bench.start", "1"],
    "second row": ["-m", "fedssca.studies.bench.start", "2"],
}


def measure_start(turns: int, tick: Callable[[str], None]) -> dict[str, Any]:
    """Return `start`: seconds to the first row / of `import jax`, medians, programs compiled.

    `start_second` is the same for the second row; `start_cold` and `start_second_cold` are those of
    the very first run, when nothing is compiled. The bytecode of Python is there in all runs, as
    after an installation with pip.
    """
    compileall.compile_dir(PACKAGE, quiet=2)
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as folder:
        cold = {}
        for name in ("first row", "second row"):
            env = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/{name}"}
            tick(f"{name} of the very first run")
            cold[name] = _seconds(name, env)
        runs: dict[str, list[float]] = {name: [] for name in CHILDREN}
        for turn in range(turns):
            for name, own in runs.items():
                tick(f"{name}, turn {turn + 1} of {turns}")
                own.append(_seconds(name, env))
    timings = {name: Timing(tuple(own)) for name, own in runs.items()}
    base = timings["import jax"].median
    return {
        "start": timings["first row"].median / base,
        "start_cold": cold["first row"] / base,
        "start_second": timings["second row"].median / base,
        "start_second_cold": cold["second row"] / base,
        "start_seconds": summary(timings),
    }


def _seconds(name: str, env: dict[str, str]) -> float:
    outcome = run_child([sys.executable, *CHILDREN[name]], PATIENCE, env)
    if outcome.code != 0:
        raise UserError(f"bench --only start: {name} failed: {last_line(outcome.err)}")
    return outcome.seconds


def _rows(wanted: int) -> None:
    from fedssca.run.config import parse
    from fedssca.run.execute import execute
    from fedssca.system import keep_compiled_programs

    keep_compiled_programs()
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as folder:
        seen: list[dict[str, Any]] = []

        def end(row: dict[str, Any]) -> None:
            seen.append(row)
            if len(seen) == wanted:
                os._exit(0)

        execute(parse(""), Path(folder) / "run", on_row=end)


if __name__ == "__main__":
    _rows(int(sys.argv[1]))
