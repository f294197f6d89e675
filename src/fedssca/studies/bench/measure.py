"""All sections of the benchmark, one after another."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedssca.data import cache_folder
from fedssca.errors import UserError
from fedssca.studies.bench.align import measure_psi
from fedssca.studies.bench.costs import measure_costs
from fedssca.studies.bench.deep import measure_deep
from fedssca.studies.bench.growth import measure_growth
from fedssca.studies.bench.limit import measure_limit
from fedssca.studies.bench.methods import METHODS, measure_methods
from fedssca.studies.bench.noise import measure_noise
from fedssca.studies.bench.peers import Plan, folder, measure_peers
from fedssca.studies.bench.sent_bytes import measure_bytes
from fedssca.studies.bench.sites import measure_sites
from fedssca.studies.bench.start import measure_start
from fedssca.studies.bench.sums import measure_sums
from fedssca.studies.bench.task import images
from fedssca.studies.bench.timing import machine

__all__ = ["SECTIONS", "measure_all"]

SECTIONS = (
    "limit",
    "methods",
    "noise",
    "deep",
    "start",
    "bytes",
    "sums",
    "psi",
    "sites",
    "peers",
    "growth",
)
Tell = Callable[[str], None]
"""Takes a line about the progress, or a warning."""


def measure_all(
    sections: tuple[str, ...],
    venvs: Path | None,
    quick: bool,
    tick: Tell,
    warn: Tell,
    methods: Sequence[str] = METHODS,
) -> dict[str, Any]:
    """Measure the chosen sections one after another; the result is one JSON object.

    `methods` are those of the section of this name.
    """
    if sections == ("peers",):
        folder()
    tick("reading the data")
    data = images()
    found: dict[str, Any] = {"machine": machine(), "quick": quick}
    found["data"] = data.name
    load, processors = found["machine"]["load_before"], os.cpu_count() or 1
    if load is not None and load > processors / 4:
        warn(f"note: the machine is busy (load {load} on {processors} processors): these are rough")
    home = (venvs or cache_folder() / "bench").expanduser().absolute()
    turns, seconds = (2, 0.03) if quick else (15, 0.2)
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "limit": lambda: (
            measure_limit(data, turns, seconds, tick) | measure_costs(data, turns, seconds, tick)
        ),
        "methods": lambda: measure_methods(data, methods, turns, seconds, tick),
        "noise": lambda: measure_noise(data, turns, seconds, tick),
        "deep": lambda: measure_deep(data, turns, seconds, tick),
        "start": lambda: measure_start(1 if quick else 5, tick),
        "bytes": lambda: measure_bytes(quick, tick),
        "sums": lambda: measure_sums(1 if quick else 5, tick),
        "psi": lambda: measure_psi(quick, tick),
        "sites": lambda: measure_sites(quick, tick),
        "peers": lambda: measure_peers(data, _plan(quick), 1 if quick else 3, home, tick),
        "growth": lambda: measure_growth(data, max(2, turns // 3), seconds / 2, home, quick, tick),
    }
    for name in (name for name in SECTIONS if name in sections):
        try:
            found |= ways[name]()
        except UserError as error:
            if sections == (name,):
                raise
            warn(f"note: {error}")
    return found


def _plan(quick: bool) -> Plan:
    plan = Plan(threads=os.cpu_count() or 1)
    return dataclasses.replace(plan, rounds=40, warmup=5, seconds=0.3) if quick else plan
