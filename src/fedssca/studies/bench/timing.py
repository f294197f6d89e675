"""Honest clocks: what is compared takes turns, so that the machine's moods hit all alike."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Timing", "Way", "interleave", "machine", "summary"]

PAUSE = 0.05
"""Before every turn: idle threads of another library (BLAS) spin for a while before they sleep."""

WARM = 10
"""A tenth of a turn goes untimed: whoever ran before has left caches and clocks to his liking."""

Way = Callable[[int], object]
"""Does its work n times and returns when all of it is done."""


class Timing(NamedTuple):
    """Seconds of one repetition, once a turn."""

    runs: tuple[float, ...]

    @property
    def best(self) -> float:
        """The least disturbed turn."""
        return min(self.runs)

    @property
    def median(self) -> float:
        """The usual turn."""
        return statistics.median(self.runs)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median."""
        return (max(self.runs) - min(self.runs)) / self.median

    def row(self) -> dict[str, Any]:
        """As JSON."""
        row = {"best": self.best, "median": self.median, "spread": self.spread}
        return row | {"runs": list(self.runs)}


def interleave(
    ways: Mapping[str, Way], turns: int, seconds: float, tick: Callable[[str], None]
) -> dict[str, Timing]:
    """Time all ways in turn, `turns` times; a turn repeats the work for about `seconds`."""
    counts = {}
    for name, way in ways.items():
        tick(f"preparing {name}")
        way(1)
        counts[name] = _count(way, seconds)
    runs: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns):
        for name, way in ways.items():
            tick(f"{name}, turn {turn + 1} of {turns}")
            time.sleep(PAUSE)
            way(max(1, counts[name] // WARM))
            runs[name].append(_clock(way, counts[name]) / counts[name])
    return {name: Timing(tuple(each)) for name, each in runs.items()}


def _count(way: Way, seconds: float) -> int:
    """How many repetitions fill `seconds`."""
    count, taken = 1, _clock(way, 1)
    while taken < seconds / 4:
        count *= 4
        taken = _clock(way, count)
    return max(1, round(count * seconds / taken))


def _clock(way: Way, count: int) -> float:
    begun = time.perf_counter()
    way(count)
    return time.perf_counter() - begun


def summary(timings: Mapping[str, Timing]) -> dict[str, Any]:
    """All timings as JSON."""
    return {name: timing.row() for name, timing in timings.items()}


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    from fedssca.run.record import versions

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
