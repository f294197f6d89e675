"""What extras of a round cost: limits, columns instead of rows, seeds, compiling, many clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedssca.studies.bench import extras
from fedssca.studies.bench.task import Images, Shape, rounds
from fedssca.studies.bench.timing import Workload, interleave, summary

__all__ = ["measure_costs"]


def measure_costs(
    data: Images, turns: int, seconds: float, tick: Callable[[str], None]
) -> dict[str, Any]:
    """Return `costs`: name -> seconds with the extra / seconds without, best of the turns."""
    workloads, pairs = _limits(data)
    quick = turns <= 2
    if not quick:
        workloads["crowd"], workloads["few"] = extras.crowd(data)
        pairs[extras.CROWDED] = ("crowd", "few")
    timings = interleave(workloads, turns, seconds, tick)
    runs = extras.seeds(data, extras.SHORT if quick else extras.RUN)
    tick("runs of several seeds")
    timings |= interleave(runs, min(turns, 3), 0.0, tick)
    pairs[extras.SEEDED] = ("ten seeds", "one seed")
    tick("a million clients")
    started = {} if quick else {"start_of_a_million_clients": extras.start_seconds(data)}
    tick("compiling, cold and warm")
    return started | {
        "costs": {name: timings[a].best / timings[b].best for name, (a, b) in pairs.items()},
        "compile": extras.compile_seconds(),
        "costs_seconds": summary(timings),
    }


def _limits(data: Images) -> tuple[dict[str, Workload], dict[str, tuple[str, str]]]:
    """Return the rounds to time, and the pairs of them to compare."""
    shapes = {"columns, B = 1000": Shape(batch=1000, split="feature")}
    pairs = {"columns, B = 1000 / rows, B = 100 x 10": ("columns, B = 1000", "free, B = 100")}
    for batch in (100, 1000):
        shapes[f"free, B = {batch}"] = Shape(batch=batch)
        for kind in ("exact", "steered"):
            name = f"{kind}, B = {batch}"
            shapes[name] = Shape(batch=batch, limits=1, multipliers=kind)
            pairs[f"one limit / none, {name}"] = (name, f"free, B = {batch}")
    return {name: rounds(data, shape) for name, shape in shapes.items()}, pairs
