"""How a round grows: with clients, batch size, hidden units and limits, one at a time."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.bench import peers, venv
from fedssca.bench.task import Images, Shape, rounds
from fedssca.bench.timing import interleave
from fedssca.errors import UserError

__all__ = ["measure_growth", "points"]

AXES = {
    "clients": (10, 30, 100, 300, 1000),
    "batch": (1, 10, 100, 1000),
    "hidden": (16, 64, 256, 1024),
    "limits": (0, 1, 10, 100),
}
CROWDED = Shape(rows=100)
"""Many clients have few rows each, the same number at every point."""
QUICK = 2


class Point(NamedTuple):
    """One point of one line."""

    axis: str
    value: int
    line: str
    shape: Shape


def points(quick: bool = False) -> Iterator[Point]:
    """All points of our lines."""
    for axis, values in AXES.items():
        for value in values[:QUICK] if quick else values:
            if axis == "limits":
                for kind in ("steered", "exact"):
                    yield Point(axis, value, kind, Shape(limits=value, multipliers=kind))
            else:
                given: dict[str, Any] = {axis: value}
                shape = (CROWDED if axis == "clients" else Shape())._replace(**given)
                yield Point(axis, value, "ours", shape)


def measure_growth(
    data: Images,
    turns: int,
    seconds: float,
    venvs: Path,
    quick: bool,
    tick: Callable[[str], None],
) -> dict[str, Any]:
    """`growth`: one row a point, with seconds a round; a PyTorch loop too if it is installed."""
    table = []
    for axis in AXES:  # one axis after another: its programs and data are let go
        chosen = {f"{p.line}, {axis} = {p.value}": p for p in points(quick) if p.axis == axis}
        ways = {name: rounds(data, p.shape) for name, p in chosen.items()}
        timings = interleave(ways, turns, seconds, tick)
        for name, point in chosen.items():
            table.append(_row(point, timings[name].row()))
    return {"growth": table + _pytorch(data, venvs, quick, tick)}


def _row(point: Point, timing: dict[str, Any]) -> dict[str, Any]:
    named = {"axis": point.axis, "value": point.value, "line": point.line}
    return named | {key: timing[key] for key in ("best", "median", "spread")}


def _pytorch(
    data: Images, venvs: Path, quick: bool, tick: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The loop over clients in PyTorch, where its environment was made by `--only peers`."""
    try:
        scripts = peers.folder()
    except UserError:
        return []
    home = venv.place(venvs, "pytorch", scripts / "pytorch.txt")
    if not (home / venv.DONE).is_file():
        return []
    command = [str(home / "bin" / "python"), str(scripts / "run_pytorch.py")]
    table = []
    plan = peers.Plan(rounds=15, warmup=3, seconds=0.3, variant="loop")
    with tempfile.TemporaryDirectory(prefix="fedssca-bench-") as folder:
        for point in points(quick):
            if point.axis == "limits":
                continue
            tick(f"PyTorch loop, {point.axis} = {point.value}")
            shape = point.shape
            own = replace(plan, clients=shape.clients, rows=shape.rows, batch=shape.batch)
            tiled = Images(data.name, *_tiled(data, shape))
            files = peers.write_data(Path(folder), tiled, shape.hidden)
            answer = peers.ask(command, files | asdict(own) | {"seed": 0}, Path(folder), 120.0)
            Path(files["data"]).unlink()
            if isinstance(answer, peers.Answer):
                median = statistics.median(answer.seconds)
                spread = (max(answer.seconds) - min(answer.seconds)) / median
                timing = {"best": min(answer.seconds), "median": median, "spread": spread}
                table.append(_row(point._replace(line="PyTorch loop"), timing))
    return table


def _tiled(data: Images, shape: Shape) -> tuple[Any, Any]:
    from fedssca.bench.task import take

    columns = take(data, shape.clients, shape.rows).columns
    return columns["x"], columns["y"]
