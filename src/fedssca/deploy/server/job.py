"""The server's part of a job: it carries out the run and answers commands of the submitting side.

A command is a dictionary; the answer to it is one too.

    {"rows_from": n}            rows of metrics from number n on, events, live sites, the outcome
    {"file": name, "at": n}     a piece of a file of the run directory, from byte n on
    {"taken": true}             the submitting side has all files, so the job may end
    {"stop": true}              the follower of the run is told that it was stopped
"""

from __future__ import annotations

import base64
import logging
import threading
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from fedssca.deploy.engine import JobOrder, Link
from fedssca.deploy.outcome import RUN_FILES
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.server.sites import SitesMissing
from fedssca.errors import UserError
from fedssca.run.config import parse, render
from fedssca.run.more import made_longer
from fedssca.run.record import RunDirectory

__all__ = ["ServerJob"]

PIECE = 2_000_000
"""The number of bytes of a file that one command returns."""

WAITING = 120.0
"""The seconds that a finished job waits for the submitting side to copy its files."""


LOG = logging.getLogger(__name__)
INTERNAL = "an internal error, which the log of the server describes"

Position: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]


@with_config(ConfigDict(extra="forbid", strict=True))
class Command(TypedDict, total=False):
    """What the submitting side may ask of a running job."""

    rows_from: Position
    file: str
    at: Position
    taken: bool
    stop: bool


@with_config(ConfigDict(extra="forbid", strict=True))
class OrderFields(TypedDict):
    """The fields of a `JobOrder` as they must be."""

    run: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    sites: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(min_length=1)]
    config: Annotated[str, Field(max_length=10**7)]
    resume: bool
    task: Literal["train", "predict"]
    longer: Annotated[str, Field(pattern="^(algorithm\\.(max_)?rounds=[1-9][0-9]{0,9})?$")]


ORDER: TypeAdapter[OrderFields] = TypeAdapter(OrderFields)
COMMAND: TypeAdapter[Command] = TypeAdapter(Command)


def check_order(order: JobOrder) -> None:
    """Raise a UserError unless the order has the form that the submitting side gives it.

    The run's identifier becomes the name of a folder, so nothing but 32 digits is one.
    """
    try:
        ORDER.validate_python(order._asdict())
    except ValidationError as error:
        raise UserError(
            f"the job's {error.errors()[0]['loc'][0]} is not one that fedssca deploy submit makes"
        ) from None
    if len(set(order.sites)) != len(order.sites):
        raise UserError("a site is named twice in the job: name each once")


class ServerJob:
    """One job at the server."""

    def __init__(self, order: JobOrder) -> None:
        self.order = order
        self.folder: Path | None = None
        self._server: RunServer | None = None
        self._outcome: dict[str, Any] = {"state": "starting"}
        self._taken = threading.Event()
        self._stopped = False
        self._on_row: Callable[[dict[str, Any]], None] = lambda row: None

    def run(self, link: Link, connected: Collection[str], runs: Path) -> None:
        """Carry out the order in a folder below `runs`; wait until its outcome was taken."""
        self.finish(link, connected, runs)
        self._taken.wait(WAITING)

    def finish(
        self,
        link: Link,
        connected: Collection[str],
        runs: Path,
        on_row: Callable[[dict[str, Any]], None] = lambda row: None,
    ) -> dict[str, Any]:
        """Carry out the order in a folder below `runs`; `on_row` sees its rows of metrics.

        Returns the outcome: a state of `deploy.outcome` and what belongs to it.
        """
        self._outcome, self._on_row = {"state": "running"}, on_row
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            outcome = self._outcome_of(link, connected, runs)
        notes = [str(warning.message) for warning in said if warning.category is UserWarning]
        self._outcome = outcome | {"warnings": list(dict.fromkeys(notes))}
        return self._outcome

    def _outcome_of(self, link: Link, connected: Collection[str], runs: Path) -> dict[str, Any]:
        """The outcome of the order; whatever goes wrong is one, too."""
        try:
            check_order(self.order)
            self.folder = runs / self.order.run
            return self.carry_out(link, connected, self.folder)
        except UserError as error:
            return {"state": "failed", "message": str(error)}
        except Exception:
            LOG.exception("the run %s ended", self.order.run)
            return {"state": "failed", "message": INTERNAL}

    def carry_out(self, link: Link, connected: Collection[str], folder: Path) -> dict[str, Any]:
        """The outcome: a state of `deploy.outcome` and what belongs to it."""
        order = self.order
        if missing := [site for site in order.sites if site not in connected]:
            return {"state": "away", "sites": missing, "message": f"{missing[0]} is not connected"}
        try:
            run = self._run_order(folder)
            self._server = RunServer(run, link, folder)
            if order.task == "predict":
                return {"state": "done", "answer": self._server.predict()}
            self._server.run(self._on_row)
        except SitesMissing as missing_:
            return {"state": "away", "sites": missing_.sites, "message": str(missing_)}
        except UserError as error:
            return {"state": "failed", "message": str(error)}
        return {"state": "done"}

    def _run_order(self, folder: Path) -> RunOrder:
        """The run as it is in its folder, or as it was submitted if it has not begun."""
        order, more = self.order, False
        resume = order.resume and (folder / "config.toml").exists()
        config = parse(RunDirectory.open(folder).config if resume else order.config)
        if order.longer:
            if not resume:
                raise UserError("--more: the server does not have this run: start a new one")
            # A job that is submitted again finds the larger number of rounds already there.
            wanted = parse(render(config), [order.longer])
            if more := wanted != config:
                config = made_longer(RunDirectory.open(folder), order.longer)
        return RunOrder(config, order.sites, bytes.fromhex(order.run), resume, more)

    def command(self, asked: dict[str, Any] | None) -> dict[str, Any]:
        """Answer one command of the submitting side; one that is no such command is refused."""
        try:
            return self._answer(COMMAND.validate_python(asked or {}))
        except ValidationError:
            return {"error": "this is no command to a job"}

    def _answer(self, asked: Command) -> dict[str, Any]:
        if "file" in asked:
            return self._piece(asked["file"], asked.get("at", 0))
        if asked.get("taken"):
            self._taken.set()
        self._stopped |= bool(asked.get("stop"))
        said: dict[str, Any] = {"rows": [], "live": [], "events": [], "round": 0}
        if self._server is not None:
            said = self._server.status(asked.get("rows_from", 0))
        outcome = self._outcome
        if self._stopped and outcome["state"] != "done":
            outcome = {"state": "stopped", "message": "the run was stopped"}
        return said | {"outcome": outcome, "run": self.order.run, "taken": self._taken.is_set()}

    def _piece(self, name: str, at: int) -> dict[str, Any]:
        if name not in RUN_FILES or self.folder is None or not (self.folder / name).is_file():
            return {"size": -1}
        with open(self.folder / name, "rb") as file:
            file.seek(at)
            data = file.read(PIECE)
        size = (self.folder / name).stat().st_size
        return {"size": size, "data": base64.b64encode(data).decode()}
