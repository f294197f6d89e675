"""The classes that an NVFlare job names. They are installed with the package at every party.

A site's kit allows these classes and nothing else, and no code that comes with a job: whoever
submits a run chooses its numbers, not what sites execute.
"""

from __future__ import annotations

import base64
import os
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle
from nvflare.collab import collab

from fedssca.deploy.conduct import Conductor, Order
from fedssca.deploy.crew import Away
from fedssca.deploy.engines.nvflare import CollabLink
from fedssca.deploy.identity import from_kit
from fedssca.deploy.kit import FILES, SITE_FILE, TOPIC
from fedssca.deploy.party import Party, Unreached
from fedssca.deploy.sheet import read_source
from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.record import RunDirectory
from fedssca.system import end_with_parent

__all__ = ["Coordinator", "Launcher", "Site"]

PIECE = 2_000_000
"""Bytes of a file that one command brings to the submitting side."""
WAITING = 120.0
"""Seconds that a finished job waits for the submitting side to take its files."""


class Coordinator:
    """The server's part of a job: conducts the run and answers the submitting side meanwhile."""

    def __init__(
        self, config: str, sites: list[str], run: str, resume: bool, task: str = "train"
    ) -> None:
        self._text, self._sites, self._run, self._resume = config, sites, run, resume
        self._task = task
        self._conductor: Conductor | None = None
        self._outcome: dict[str, Any] = {"state": "starting"}
        self._folder: Path | None = None
        self._taken = threading.Event()
        self._stopped = False
        self._begun = time.time()

    @collab.main
    def main(self) -> None:
        """Run the order; the outcome, good or bad, waits for the submitting side."""
        end_with_parent()
        engine = collab.fl_ctx.get_engine()
        engine.register_app_command(TOPIC, self._command)
        root = Path(collab.workspace.get_root_dir())
        self._folder = root / "runs" / self._run
        self._outcome = {"state": "running"}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            outcome = self._conduct()
        notes = [str(warning.message) for warning in said if warning.category is UserWarning]
        self._outcome = outcome | {"warnings": list(dict.fromkeys(notes))}
        self._taken.wait(WAITING)

    def _conduct(self) -> dict[str, Any]:
        assert self._folder is not None
        try:
            here = {proxy.name for proxy in collab.clients}
            if missing := [site for site in self._sites if site not in here]:
                return {"state": "away", "sites": missing, "message": f"{missing[0]} is not here"}
            resume = self._resume and (self._folder / "config.toml").exists()
            text = RunDirectory.open(self._folder).config if resume else self._text
            order = Order(parse(text), self._sites, bytes.fromhex(self._run), resume)
            self._conductor = Conductor(order, CollabLink(), self._folder)
            if self._task == "predict":
                return {"state": "done", "answer": self._conductor.predict()}
            self._conductor.run()
        except Away as away:
            return {"state": "away", "sites": away.sites, "message": str(away)}
        except UserError as error:
            return {"state": "failed", "message": str(error)}
        return {"state": "done"}

    def _command(self, topic: str, asked: Any, fl_ctx: Any) -> dict[str, Any]:
        """One command of the submitting side: status, a piece of a file, "taken" or "stop"."""
        del topic, fl_ctx
        asked = asked or {}
        if "file" in asked:
            return self._piece(str(asked["file"]), int(asked.get("at", 0)))
        if asked.get("taken"):
            self._taken.set()
        self._stopped |= bool(asked.get("stop"))
        said: dict[str, Any] = {"rows": [], "live": [], "events": [], "round": 0}
        if self._conductor is not None:
            said = self._conductor.status(int(asked.get("rows_from", 0)))
        outcome = self._outcome
        if self._stopped and outcome["state"] != "done":
            outcome = {"state": "stopped", "message": "the run was stopped"}
        return said | {"outcome": outcome, "run": self._run, "taken": self._taken.is_set()}

    def _piece(self, name: str, at: int) -> dict[str, Any]:
        if name not in FILES or self._folder is None or not (self._folder / name).is_file():
            return {"size": -1}
        with open(self._folder / name, "rb") as file:
            file.seek(at)
            data = file.read(PIECE)
        size = (self._folder / name).stat().st_size
        return {"size": size, "data": base64.b64encode(data).decode()}


class Site:
    """A site's part of a job: letters in, letters out."""

    def __init__(self) -> None:
        self._party: Party | None = None

    @collab.init
    def begin(self) -> None:
        """Find this site's data; a site that was started without any cannot take part."""
        end_with_parent()
        file = os.environ.get(SITE_FILE)
        if not file:
            raise UserError(f"{collab.site_name}: start it with fedssca deploy site KIT --data ...")
        cell = collab.fl_ctx.get_engine().get_cell()
        secure = bool(cell.core_cell.supports_secure_messages())
        known = from_kit(Path(collab.workspace.get_startup_kit_dir()))
        self._party = Party(collab.site_name, read_source(Path(file)), secure, known)

    @collab.publish
    def handle(self, data: bytes) -> bytes:
        """Answer the server."""
        assert self._party is not None
        if collab.caller != "server":
            raise UserError(f"{collab.caller} asked what only the server may ask")
        return self._party.handle(data, _post)

    @collab.publish
    def put(self, data: bytes) -> bool:
        """Take a peer's letter."""
        assert self._party is not None
        self._party.receive(collab.caller, data)
        return True


def _post(letters: Mapping[str, bytes], timeout: float) -> None:
    """Each peer its letter, encrypted for that peer alone; all have it when this returns."""
    waiting = {
        peer: collab.get_clients([peer])(blocking=False, secure=True, timeout=timeout).put(data)
        for peer, data in letters.items()
    }
    for peer, results in waiting.items():
        if not [done for _, done in results if done is True]:
            raise Unreached(peer, str(results.failures.get(peer)))


class Launcher(ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts a job's process at a site. One that was killed is a site away, not a failed job."""

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
        """As the engine does it, with another way to tell its end."""
        return _Handle(process_adapter=super().launch_job(job_meta, fl_ctx).adapter)


class _Handle(ProcessHandle):  # type: ignore[misc]
    def poll(self) -> Any:
        """Killed by a signal: like a network that is gone, for the server to find out."""
        from nvflare.apis.job_launcher_spec import JobReturnCode

        code = self.adapter.poll()
        if code is not None and (code < 0 or code > 128):
            return JobReturnCode.UNKNOWN
        return super().poll()
