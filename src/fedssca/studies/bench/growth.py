"""The time of a round as clients, batch size, hidden units and limits grow, one at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedssca.errors import UserError
from fedssca.studies.bench import peers, venv
from fedssca.studies.bench.task import Images, Shape, rounds
from fedssca.studies.bench.timing import Timing, interleave

__all__ = ["measure_growth", "points"]

AXES = {
    "clients": (10, 100, 1000),
    "batch": (1, 10, 100, 1000),
    "hidden": (16, 128, 1024, 12_595),
    "limits": (0, 1, 10, 100),
}
CROWDS = (1_000, 10_000, 100_000, 1_000_000)
CROWDED = Shape(rows=100)
"""Many clients have few rows each; the number of rows is the same at every point."""
COHORT = Shape(rows=10, cohort=100)
QUICK = 2
SHORT = {"clients": (10, 100), "batch": (10, 1000), "hidden": (128, 1024)}
"""The points at which slow frameworks are measured: their rounds take up to seconds."""


class GrowthPoint(NamedTuple):
    """One point of one line of the figure."""

    axis: str
    value: int
    line: str
    shape: Shape


def points(quick: bool = False) -> Iterator[GrowthPoint]:
    """Yield all points of the lines of this library."""
    for axis, values in AXES.items():
        for value in values[:QUICK] if quick else values:
            if axis == "limits":
                for kind in ("steered", "exact"):
                    yield GrowthPoint(axis, value, kind, Shape(limits=value, multipliers=kind))
            else:
                given: dict[str, Any] = {axis: value}
                shape = (CROWDED if axis == "clients" else Shape())._replace(**given)
                yield GrowthPoint(axis, value, "ours", shape)
    for value in CROWDS[:1] if quick else CROWDS:
        line = f"ours, {COHORT.cohort} per round"
        yield GrowthPoint("clients", value, line, COHORT._replace(clients=value))


def measure_growth(
    data: Images,
    turns: int,
    seconds: float,
    venvs: Path,
    quick: bool,
    tick: Callable[[str], None],
) -> dict[str, Any]:
    """Return `growth`: one row per point with the seconds per round, also of installed peers."""
    table = []
    for axis in AXES:  # One axis at a time, so that its programs and data are freed.
        chosen = {f"{p.line}, {axis} = {p.value}": p for p in points(quick) if p.axis == axis}
        workloads = {name: rounds(data, p.shape) for name, p in chosen.items()}
        timings = interleave(workloads, turns, seconds, tick)
        for name, point in chosen.items():
            table.append(_row(point, timings[name].row()))
    return {"growth": table + _peers(data, venvs, quick, tick)}


def _row(point: GrowthPoint, timing: dict[str, Any]) -> dict[str, Any]:
    named = {"axis": point.axis, "value": point.value, "line": point.line}
    return named | {key: timing[key] for key in ("best", "median", "spread")}


def _peers(
    data: Images, venvs: Path, quick: bool, tick: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measure the frameworks whose environments were made by `--only peers`."""
    try:
        scripts = peers.folder()
    except UserError:
        return []
    table = []
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as folder:
        packages = [name for name in peers.PEERS if "-" not in name]
        for name in packages[:1] if quick else packages:
            home = venv.environment_folder(venvs, name, scripts / f"{name}.txt")
            if not (home / venv.DONE).is_file():
                continue
            command = [str(home / "bin" / "python"), str(scripts / f"run_{name}.py")]
            for point in points(quick):
                if point.line == "ours" and (name == "pytorch" or _short(point)):
                    tick(f"{name}, {point.axis} = {point.value}")
                    row = _ask(data, command, point._replace(line=name), Path(folder))
                    table += [] if row is None else [row]
    return table


def _short(point: GrowthPoint) -> bool:
    return point.value in SHORT.get(point.axis, ())


def _ask(
    data: Images, command: list[str], point: GrowthPoint, folder: Path
) -> dict[str, Any] | None:
    """Return the seconds per round of a peer at one point, or None if it fails."""
    shape, total = point.shape, point.shape.clients * point.shape.rows
    index = np.arange(total) % len(data.y)
    plan = peers.Plan(
        shape.clients,
        shape.rows,
        shape.batch,
        rounds=15,
        warmup=3,
        seconds=0.3,
        hidden=shape.hidden,
    )
    files = peers.write_data(folder, Images(data.name, data.x[index], data.y[index]), plan)
    settings = files | asdict(plan) | {"seed": 0, "variant": ""}
    answer = peers.run_peer(command, settings, folder, 180.0)
    Path(files["data"]).unlink()
    if not isinstance(answer, peers.PeerTiming):
        return None
    return _row(point, Timing(tuple(answer.seconds)).row())
