"""Fair timing: compared workloads run in turns, so that disturbances affect all of them alike."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Timing", "Workload", "interleave", "machine", "summary"]

PAUSE = 0.05
"""Seconds before every turn: idle threads of another library (BLAS) spin before they sleep."""

WARM = 10
"""One part in this many of a turn is not timed, to warm up the caches."""

Workload = Callable[[int], object]
"""A function that does its work n times and returns when all of it is done."""


class Timing(NamedTuple):
    """The seconds of one repetition, one value per turn."""

    runs: tuple[float, ...]

    @property
    def best(self) -> float:
        """The shortest turn, which was disturbed least."""
        return min(self.runs)

    @property
    def median(self) -> float:
        """The median turn."""
        return statistics.median(self.runs)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median."""
        return (max(self.runs) - min(self.runs)) / self.median

    def row(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        row = {"best": self.best, "median": self.median, "spread": self.spread}
        return row | {"runs": list(self.runs)}


def interleave(
    workloads: Mapping[str, Workload], turns: int, seconds: float, tick: Callable[[str], None]
) -> dict[str, Timing]:
    """Time all workloads in turn, `turns` times; a turn lasts about `seconds`."""
    counts = {}
    for name, workload in workloads.items():
        tick(f"preparing {name}")
        workload(1)
        counts[name] = _count(workload, seconds)
    runs: dict[str, list[float]] = {name: [] for name in workloads}
    for turn in range(turns):
        for name, workload in workloads.items():
            tick(f"{name}, turn {turn + 1} of {turns}")
            time.sleep(PAUSE)
            workload(max(1, counts[name] // WARM))
            runs[name].append(_clock(workload, counts[name]) / counts[name])
    return {name: Timing(tuple(each)) for name, each in runs.items()}


def _count(workload: Workload, seconds: float) -> int:
    """Return how many repetitions take `seconds`."""
    count, taken = 1, _clock(workload, 1)
    while taken < seconds / 4:
        count *= 4
        taken = _clock(workload, count)
    return max(1, round(count * seconds / taken))


def _clock(workload: Workload, count: int) -> float:
    begun = time.perf_counter()
    workload(count)
    return time.perf_counter() - begun


def summary(timings: Mapping[str, Timing]) -> dict[str, Any]:
    """Return all timings for JSON."""
    return {name: timing.row() for name, timing in timings.items()}


def machine() -> dict[str, Any]:
    """Describe the machine of the measurements."""
    from fedssca.run.versions import versions

    return {
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "processor": _processor(),
        "system": platform.platform(),
        "load_before": _load(),
        "versions": versions(),
    }


def _processor(place: Path = Path("/proc/cpuinfo")) -> str:
    lines: Sequence[str] = place.read_text().splitlines() if place.exists() else ()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _load() -> float | None:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
