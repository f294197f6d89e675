"""The time of a round of several methods on the same task, also of methods of users by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedssca.run.build.choose import method_of
from fedssca.run.config import parse
from fedssca.run.tune.space import RIVALS
from fedssca.studies.bench.task import Images, Shape, rounds_of, setup
from fedssca.studies.bench.timing import Workload, interleave, summary

__all__ = ["METHODS", "measure_methods"]

METHODS = ("ssca", "fedsgd", "fedavg", "primal-dual")


def measure_methods(
    data: Images,
    names: Sequence[str],
    turns: int,
    seconds: float,
    tick: Callable[[str], None],
) -> dict[str, Any]:
    """Return `methods`: name -> seconds of a round, best of the turns; B = 10."""
    workloads = {name: _rounds(data, name) for name in names}
    timings = interleave(workloads, turns, seconds, tick)
    return {
        "methods": {name: timing.best for name, timing in timings.items()},
        "methods_seconds": summary(timings),
    }


def _rounds(data: Images, name: str) -> Workload:
    """Rounds of the method that a run names; methods that need a limit have one."""
    problem, clients, _ = setup(data, Shape(limits=int(name in RIVALS)))
    algorithm = method_of(parse("", [f"algorithm.name={name}"]), problem).algorithm
    return rounds_of(problem, clients, algorithm)
