"""The server's part of a job: it carries out the run and answers commands of the submitting side.

A command is a dictionary; the answer to it is one too.

    {"rows_from": n}            rows of metrics from number n on, events, live sites, the outcome
    {"file": name, "at": n}     a piece of a file of the run directory, from byte n on
    {"taken": true}             the submitting side has all files, so the job may end
    {"stop": true}              the follower of the run is told that it was stopped
"""

from __future__ import annotations

import base64
import threading
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedssca.deploy.engine import JobOrder, Link
from fedssca.deploy.outcome import RUN_FILES
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.server.sites import SitesMissing
from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.record import RunDirectory

__all__ = ["ServerJob"]

PIECE = 2_000_000
"""The number of bytes of a file that one command returns."""

WAITING = 120.0
"""The seconds that a finished job waits for the submitting side to copy its files."""


class ServerJob:
    """One job at the server."""

    def __init__(self, order: JobOrder) -> None:
        self.order = order
        self.folder: Path | None = None
        self._server: RunServer | None = None
        self._outcome: dict[str, Any] = {"state": "starting"}
        self._taken = threading.Event()
        self._stopped = False

    def run(self, link: Link, connected: Collection[str], runs: Path) -> None:
        """Carry out the order in a folder below `runs`; wait until its outcome was taken."""
        self.folder = runs / self.order.run
        self._outcome = {"state": "running"}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            outcome = self.carry_out(link, connected, self.folder)
        notes = [str(warning.message) for warning in said if warning.category is UserWarning]
        self._outcome = outcome | {"warnings": list(dict.fromkeys(notes))}
        self._taken.wait(WAITING)

    def carry_out(self, link: Link, connected: Collection[str], folder: Path) -> dict[str, Any]:
        """The outcome: a state of `deploy.outcome` and what belongs to it."""
        order = self.order
        if missing := [site for site in order.sites if site not in connected]:
            return {"state": "away", "sites": missing, "message": f"{missing[0]} is not connected"}
        try:
            resume = order.resume and (folder / "config.toml").exists()
            text = RunDirectory.open(folder).config if resume else order.config
            run = RunOrder(parse(text), order.sites, bytes.fromhex(order.run), resume)
            self._server = RunServer(run, link, folder)
            if order.task == "predict":
                return {"state": "done", "answer": self._server.predict()}
            self._server.run()
        except SitesMissing as missing_:
            return {"state": "away", "sites": missing_.sites, "message": str(missing_)}
        except UserError as error:
            return {"state": "failed", "message": str(error)}
        return {"state": "done"}

    def command(self, asked: dict[str, Any] | None) -> dict[str, Any]:
        """Answer one command of the submitting side."""
        asked = asked or {}
        if "file" in asked:
            return self._piece(str(asked["file"]), int(asked.get("at", 0)))
        if asked.get("taken"):
            self._taken.set()
        self._stopped |= bool(asked.get("stop"))
        said: dict[str, Any] = {"rows": [], "live": [], "events": [], "round": 0}
        if self._server is not None:
            said = self._server.status(int(asked.get("rows_from", 0)))
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
