"""The rows of a run for TensorBoard (event files) and MLflow (tracking).

Both are optional packages. Rows are exported while the run trains, or later from its directory.
"""

from __future__ import annotations

import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.record import RunDirectory
from fedssca.run.rows import flat
from fedssca.system import pip_install

__all__ = ["ExportTargets", "export_run", "exporting", "returned_numbers", "row_numbers"]

Row = dict[str, Any]
RETURNED = ("objective", "train_cost", "test_accuracy", "norm_sq", "constraints", "kkt_residual")
"""The values of the returned model that are exported."""


class ExportTargets(NamedTuple):
    """Where rows are exported to, besides the run directory."""

    tensorboard: Path | None = None
    """A folder, in which each run has its own subfolder."""
    mlflow: str | None = None
    """A tracking URI such as http://... or sqlite:///mlflow.db."""

    def check(self) -> None:
        """Raise a UserError if a package is missing."""
        for package, needed in (("tensorboard", self.tensorboard), ("mlflow", self.mlflow)):
            if needed and find_spec(package) is None:
                raise UserError(
                    f"--{package} needs {package}: {pip_install(package)}, "
                    f"or leave out --{package} and use fedssca export later"
                )


class MetricSink(NamedTuple):
    """One export target: `write` takes numbers by name, the round, and the time since 1970."""

    write: Callable[[dict[str, float], int, float], None]
    close: Callable[[bool], None]
    """Takes whether the run is complete."""


@contextmanager
def exporting(run: Path, targets: ExportTargets) -> Iterator[Callable[[Row], None]]:
    """Give a function that exports rows of the run directory `run`.

    A target that fails is not used again. A warning says so, and the run continues.
    """
    with ExitStack() as stack:
        sinks = [stack.enter_context(_guarded(run, *each)) for each in _opened(run, targets)]

        def write(row: Row) -> None:
            for sink in sinks:
                sink(row_numbers(run, row), row["round"], row["seconds"])

        yield write
        if sinks and (final := _result(run)):
            numbers = returned_numbers(run, final)
            for sink in sinks:
                sink(numbers, final["round"], final["seconds"])


def row_numbers(run: Path, row: Row) -> dict[str, float]:
    """The numbers of a row of metrics by name, such as "constraint/fnr"."""
    return flat(row, _names(run, row))


def returned_numbers(run: Path, result: Row) -> dict[str, float]:
    """The numbers of the returned model by name, such as "returned/objective"."""
    returned = {key: result[key] for key in RETURNED if key in result}
    return {f"returned/{k}": v for k, v in flat(returned, _names(run, result)).items()}


def export_run(run: Path, targets: ExportTargets) -> int:
    """Export all rows that a run directory has so far; return how many."""
    rows = RunDirectory.open(run).rows()
    with exporting(run, targets) as write:
        for row in rows:
            write(row)
    return len(rows)


Opened = tuple[str, MetricSink]


def _opened(run: Path, targets: ExportTargets) -> Iterator[Opened]:
    targets.check()
    if targets.tensorboard:
        yield f"--tensorboard {targets.tensorboard}", _tensorboard(targets.tensorboard / run.name)
    if targets.mlflow:
        yield f"--mlflow {targets.mlflow}", _mlflow(targets.mlflow, run)


@contextmanager
def _guarded(run: Path, option: str, sink: MetricSink) -> Iterator[Callable[..., None]]:
    """Give the function that writes to one target; after its first failure it does nothing."""
    alive = True

    def attempt(action: Callable[..., None], *arguments: Any) -> None:
        nonlocal alive
        if not alive:
            return
        try:
            with _silence():
                action(*arguments)
        except Exception as error:
            alive = False
            warnings.warn(
                f"{option} failed ({_line(error)}): the run goes on; "
                f"later: fedssca export {run} {option}",
                stacklevel=2,
            )

    def write(numbers: dict[str, float], round_: int, seconds: float) -> None:
        begun = (run / "config.toml").stat().st_mtime
        attempt(sink.write, numbers, round_, begun + seconds)

    try:
        yield write
    finally:
        attempt(sink.close, _result(run) is not None)


def _tensorboard(folder: Path) -> MetricSink:
    """Write event files in `folder`; readers skip those of an earlier export of the same run."""
    with _silence():
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

    try:
        writer = EventFileWriter(str(folder), flush_secs=2)
    except OSError as error:
        raise UserError(
            f"--tensorboard: cannot write to {folder}: {error.strerror or error}; "
            "choose another folder"
        ) from error
    writer.add_event(Event(step=0, session_log=SessionLog(status=SessionLog.START)))

    def write(numbers: dict[str, float], round_: int, when: float) -> None:
        values = [Summary.Value(tag=tag, simple_value=n) for tag, n in numbers.items()]
        writer.add_event(Event(wall_time=when, step=round_, summary=Summary(value=values)))

    return MetricSink(write, lambda complete: writer.close())


def _mlflow(uri: str, run: Path) -> MetricSink:
    """Write a run of the experiment "fedssca", with the settings as its parameters."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # what is trained here may be private
    with _silence():
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        try:
            client = MlflowClient(tracking_uri=uri)
            found = client.get_experiment_by_name("fedssca")
            experiment = found.experiment_id if found else client.create_experiment("fedssca")
        except Exception as error:  # of a database, of a connection, of MLflow itself
            raise UserError(
                f"--mlflow {uri}: {_line(error)}; give a server's http://host:port "
                "or a file such as sqlite:///mlflow.db"
            ) from error
    key = ""

    def begin(begun: float) -> str:
        config = parse((run / "config.toml").read_text())
        tags = {"fedssca.directory": str(run.absolute())}
        made = client.create_run(experiment, int(1000 * begun), tags, run.name)
        params = [Param(name, str(value)[:500]) for name, value in _settings(config)]
        client.log_batch(made.info.run_id, params=params)
        return str(made.info.run_id)

    def write(numbers: dict[str, float], round_: int, when: float) -> None:
        nonlocal key
        key = key or begin(when)
        stamp = int(1000 * when)
        client.log_batch(
            key,
            [Metric(_allowed(name), float(n), stamp, round_) for name, n in numbers.items()],
        )

    def close(complete: bool) -> None:
        if key:
            client.set_terminated(key, "FINISHED" if complete else "KILLED")

    return MetricSink(write, close)


def _settings(config: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in vars(config).items():
        place = f"{name}.{key}" if name else key
        if name:
            yield place, value
        else:
            yield from _settings(value, place)


def _allowed(name: str) -> str:
    """Replace signs that MLflow does not allow in names."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _names(run: Path, row: Row) -> list[str]:
    """Return the names of the constraints from the run directory, or else their kinds."""
    for file in (run / "problem.json", run / "result.json"):
        if file.exists():
            names: list[str] = json.loads(file.read_text())["constraint_names"]
            return names
    kinds: list[str] = [e.kind for e in parse((run / "config.toml").read_text()).problem.constraint]
    return kinds if len(kinds) == len(row["constraints"]) else []


def _result(run: Path) -> Row | None:
    return RunDirectory(run).result() if (run / "config.toml").exists() else None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def _silence() -> Iterator[None]:
    """Hide warnings of other packages about themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
