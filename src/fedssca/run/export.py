"""Runs for tools that people already use: TensorBoard's event files and MLflow's tracking.

Both are optional packages. They are told the rows of a run directory, while it runs or later.
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
from fedssca.run.rows import flat

__all__ = ["Places", "export_run", "exporting"]

Row = dict[str, Any]
RETURNED = ("objective", "train_cost", "test_accuracy", "norm_sq", "constraints", "kkt_residual")
"""What is told about the returned model."""


class Places(NamedTuple):
    """Where rows go besides the run directory."""

    tensorboard: Path | None = None
    """A folder; each run has one of its own in there."""
    mlflow: str | None = None
    """A tracking URI: http://..., sqlite:///mlflow.db"""

    def check(self) -> None:
        """Raise a UserError if a package is missing: before anything else is done."""
        for package, needed in (("tensorboard", self.tensorboard), ("mlflow", self.mlflow)):
            if needed and find_spec(package) is None:
                raise UserError(
                    f"--{package} needs {package}: pip install 'fedssca[{package}]', "
                    f"or leave out --{package} and use fedssca export later"
                )


class Sink(NamedTuple):
    """A place that is told numbers by name, with the round and the time (seconds since 1970)."""

    tell: Callable[[dict[str, float], int, float], None]
    close: Callable[[bool], None]
    """Whether the run is complete."""


@contextmanager
def exporting(run: Path, places: Places) -> Iterator[Callable[[Row], None]]:
    """Gives a function that takes rows of `run`, a run directory, as they come.

    A place that fails is told nothing more and does not stop the run: a warning says so.
    """
    with ExitStack() as stack:
        sinks = [stack.enter_context(_guarded(run, *each)) for each in _opened(run, places)]

        def tell(row: Row) -> None:
            for sink in sinks:
                sink(flat(row, _names(run, row)), row["round"], row["seconds"])

        yield tell
        if sinks and (final := _result(run)):
            told = {key: final[key] for key in RETURNED if key in final}
            numbers = {f"returned/{k}": v for k, v in flat(told, _names(run, final)).items()}
            for sink in sinks:
                sink(numbers, final["round"], final["seconds"])


def export_run(run: Path, places: Places) -> int:
    """All rows that a run directory has so far; returns how many."""
    from fedssca.run.record import RunDirectory

    rows = RunDirectory.open(run).rows()
    with exporting(run, places) as tell:
        for row in rows:
            tell(row)
    return len(rows)


Opened = tuple[str, Sink]


def _opened(run: Path, places: Places) -> Iterator[Opened]:
    places.check()
    if places.tensorboard:
        yield f"--tensorboard {places.tensorboard}", _tensorboard(places.tensorboard / run.name)
    if places.mlflow:
        yield f"--mlflow {places.mlflow}", _mlflow(places.mlflow, run)


@contextmanager
def _guarded(run: Path, option: str, sink: Sink) -> Iterator[Callable[..., None]]:
    """The sink with the clock of the run; its first failure is a warning and its last word."""
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

    def tell(numbers: dict[str, float], round_: int, seconds: float) -> None:
        begun = (run / "config.toml").stat().st_mtime
        attempt(sink.tell, numbers, round_, begun + seconds)

    try:
        yield tell
    finally:
        attempt(sink.close, _result(run) is not None)


def _tensorboard(folder: Path) -> Sink:
    """Event files in `folder`; what was there from an earlier export is passed over by readers."""
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

    def tell(numbers: dict[str, float], round_: int, when: float) -> None:
        values = [Summary.Value(tag=tag, simple_value=n) for tag, n in numbers.items()]
        writer.add_event(Event(wall_time=when, step=round_, summary=Summary(value=values)))

    return Sink(tell, lambda complete: writer.close())


def _mlflow(uri: str, run: Path) -> Sink:
    """A run of the experiment "fedssca", with the settings as its parameters."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # what is trained here is private
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

    def tell(numbers: dict[str, float], round_: int, when: float) -> None:
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

    return Sink(tell, close)


def _settings(config: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in vars(config).items():
        place = f"{name}.{key}" if name else key
        if name:
            yield place, value
        else:
            yield from _settings(value, place)


def _allowed(name: str) -> str:
    """MLflow's names have letters, digits and a few signs."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _names(run: Path, row: Row) -> list[str]:
    """The constraints' names, as the run directory has them; else the kinds that were asked for."""
    for file in (run / "problem.json", run / "result.json"):
        if file.exists():
            names: list[str] = json.loads(file.read_text())["constraint_names"]
            return names
    kinds: list[str] = [e.kind for e in parse((run / "config.toml").read_text()).problem.constraint]
    return kinds if len(kinds) == len(row["constraints"]) else []


def _result(run: Path) -> Row | None:
    from fedssca.run.record import RunDirectory

    return RunDirectory(run).result() if (run / "config.toml").exists() else None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def _silence() -> Iterator[None]:
    """What other packages have to say about themselves is not for our users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
