"""The submitting side: hand in a run, follow it, bring home its run directory.

The server keeps the run (checkpoints too) in its kit; here stands a copy that grows as rows come,
with deploy.json, which says which run it is. A run whose site has gone is handed in again when the
site is back, and goes on from its last checkpoint.
"""

from __future__ import annotations

import base64
import io
import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.deploy.kit import FILES, PARTS, TOPIC, Kit
from fedssca.errors import UserError
from fedssca.run.record import RunDirectory

__all__ = ["Desk", "Follower", "Ticket", "ask_for", "follow", "open_desk"]

PAUSE = 0.5
"""Seconds between two looks at a job."""
ATTEMPTS = 3
"""Pauses without a round in between after which a run is given up."""
GOODBYE = 5.0
"""Seconds that a job that is to stop waits for its submitter to see it."""
UNREACHABLE = 20.0
"""Seconds without an answer after which the server counts as gone."""


class Ticket(NamedTuple):
    """A run that was handed in: what deploy.json holds."""

    run: str
    sites: list[str]
    config: str

    @classmethod
    def new(cls, sites: Sequence[str], config: str) -> Ticket:
        """A run that nobody else has."""
        return cls(secrets.token_hex(16), list(sites), config)

    @classmethod
    def read(cls, folder: Path) -> Ticket:
        """The ticket in a run directory."""
        try:
            return cls(**json.loads((folder / "deploy.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{folder} holds no deployed run (no deploy.json): {error}") from error

    def write(self, folder: Path) -> None:
        """Leave it in a run directory."""
        folder.mkdir(parents=True, exist_ok=True)
        RunDirectory(folder).write(
            "deploy.json", lambda file: file.write(json.dumps(self._asdict()).encode())
        )


class Gone(UserError):
    """The server does not answer."""


class Unready(Exception):
    """The job is not there yet, or not any more."""


class Desk:
    """A session with the server, opened again when it breaks."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._session: Any = None

    def close(self) -> None:
        """Say good-bye."""
        if self._session is not None:
            with suppress(Exception):
                self._session.close()
        self._session = None

    def ask(self, what: Callable[[Any], Any], patience: float = UNREACHABLE) -> Any:
        """`what` of a session; a server that stays silent is a UserError."""
        from nvflare.fuel.flare_api.api_spec import (
            AuthorizationError,
            InternalError,
            JobNotFound,
            JobNotRunning,
            NoReply,
        )

        until = time.monotonic() + patience
        while True:
            try:
                if self._session is None:
                    self._session = self._open(max(1.0, until - time.monotonic()))
                return what(self._session)
            except (JobNotFound, JobNotRunning, InternalError, NoReply) as error:
                raise Unready(str(error)) from error
            except AuthorizationError as error:
                raise UserError(f"the server refuses: {' '.join(str(error).split())}") from error
            except Exception as error:  # the engine raises many kinds when a connection is gone
                self.close()
                if time.monotonic() > until:
                    raise Gone(
                        f"the server at {self._kit.address} does not answer "
                        f"({type(error).__name__}): is fedssca deploy server running there?"
                    ) from error
                time.sleep(PAUSE)

    def _open(self, timeout: float) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        with redirect_stdout(io.StringIO()):  # the engine's own greeting
            return new_secure_session(
                self._kit.name, str(self._kit.path), timeout=timeout, auto_login_max_tries=3
            )

    def connected(self, patience: float = UNREACHABLE) -> dict[str, float]:
        """The sites that the server knows, and when each was last heard of."""
        clients = self.ask(lambda session: session.get_connected_client_list(), patience)
        return {client.name: float(client.last_connect_time) for client in clients}

    def await_sites(
        self, sites: Sequence[str], seconds: float, after: dict[str, float] | None = None
    ) -> None:
        """Until all sites are connected (heard of later than `after`), or a UserError."""
        until, missing = time.monotonic() + seconds, list(sites)
        while missing:
            here = self.connected(max(UNREACHABLE, seconds))
            missing = [
                site
                for site in sites
                if site not in here or here[site] <= (after or {}).get(site, 0.0)
            ]
            if missing and time.monotonic() > until:
                raise UserError(
                    f"{', '.join(missing)} not connected: start fedssca deploy site there"
                )
            if missing:
                time.sleep(PAUSE)

    def submit(self, ticket: Ticket, resume: bool, task: str = "train") -> str:
        """Hand in a job; returns the engine's name for it."""
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder) / "fedssca", ticket, resume, task)
            job: str = self.ask(lambda session: session.submit_job(f"{folder}/fedssca"))
        return job

    def abort(self, job: str) -> None:
        """End a job, if it is still there."""
        with suppress(Exception):
            self.ask(lambda session: session.abort_job(job), PAUSE)

    def stop(self, job: str) -> None:
        """End a job; whoever follows it is told first, or would take its sites for lost."""
        until = time.monotonic() + GOODBYE
        with suppress(Unready):
            while not self.say(job, {"stop": True})["taken"] and time.monotonic() < until:
                time.sleep(PAUSE)
        self.abort(job)

    def say(self, job: str, asked: dict[str, Any]) -> dict[str, Any]:
        """A command to the job; Unready where it does not run (yet, or any more)."""
        return dict(self.ask(lambda session: session.do_app_command(job, TOPIC, asked)))

    def status(self, job: str) -> str:
        """The engine's word for how the job is."""
        return str(self.ask(lambda session: session.get_job_status(job)))

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that the server knows."""
        return list(self.ask(lambda session: session.list_jobs()))


@contextmanager
def open_desk(kit: Kit) -> Iterator[Desk]:
    """A desk that is closed at the end."""
    desk = Desk(kit)
    try:
        yield desk
    finally:
        desk.close()


class Follower(NamedTuple):
    """What the screen is told."""

    row: Callable[[dict[str, Any], Sequence[str]], None]
    """A row, and the sites that live."""
    say: Callable[[str], None]


def follow(
    desk: Desk, ticket: Ticket, out: Path, resume: bool, tell: Follower, wait: float
) -> dict[str, Any]:
    """Hand in a run and see it through; returns what result.json holds."""
    best, vain = -1, 0
    while True:
        desk.await_sites(ticket.sites, wait)
        job = desk.submit(ticket, resume)
        try:
            outcome = _watch(desk, job, ticket, out, tell)
        except Gone as error:
            again = f"fedssca deploy submit --resume {out}"
            raise UserError(f"{error} When it is back: {again}") from error
        except BaseException:
            desk.abort(job)
            raise
        for warning in outcome.get("warnings", []):
            tell.say(f"note: {warning}")
        if outcome["state"] == "done":
            done = RunDirectory.open(out).result()
            assert done is not None
            return done
        if outcome["state"] == "failed":
            raise UserError(outcome["message"])
        if outcome["state"] == "stopped":
            raise UserError(
                f"{outcome['message']} at round {outcome['round']}; go on from its last checkpoint "
                f"with: fedssca deploy submit --resume {out}"
            )
        vain = 0 if outcome["round"] > best else vain + 1
        best = max(best, outcome["round"])
        if vain == ATTEMPTS:
            raise UserError(f"{outcome['message']}; it was so {ATTEMPTS} times in a row")
        heard = desk.connected()
        desk.abort(job)
        names = ", ".join(outcome["sites"])
        tell.say(f"paused: {outcome['message']}; waiting for {names}")
        desk.await_sites(outcome["sites"], wait, heard)
        tell.say(f"{names} back: the run goes on")
        resume = True


def ask_for(desk: Desk, ticket: Ticket, out: Path, task: str, wait: float) -> dict[str, Any]:
    """A job that ends with an answer in place of a run; what it answers."""
    desk.await_sites(ticket.sites, wait)
    job = desk.submit(ticket, True, task)
    silent = Follower(lambda row, live: None, lambda line: None)
    try:
        outcome = _watch(desk, job, ticket, out, silent)
    finally:
        desk.abort(job)
    if outcome["state"] != "done":
        raise UserError(outcome["message"])
    return dict(outcome["answer"])


def _watch(desk: Desk, job: str, ticket: Ticket, out: Path, tell: Follower) -> dict[str, Any]:
    """Rows as they come until the job has an outcome, then its files."""
    shown, told, begun = 0, 0, time.monotonic()
    while True:
        try:
            said = desk.say(job, {"rows_from": shown})
            ended = said["outcome"]["state"] in ("done", "failed", "away", "stopped")
            if said["rows"] or ended:
                _fetch(desk, job, out, FILES if ended else FILES[:3])
        except Unready:
            _check_alive(desk.status(job), time.monotonic() - begun, out)
            time.sleep(PAUSE)
            continue
        for row in said["rows"]:
            tell.row(row, said["live"])
        for event in said["events"][told:]:
            tell.say(f"round {event['round']}: {event['site']} {event['event']}")
        shown, told = shown + len(said["rows"]), len(said["events"])
        if ended:
            with suppress(Unready):
                desk.say(job, {"taken": True})
            return dict(said["outcome"]) | {"round": said["round"]}
        time.sleep(PAUSE)


def _check_alive(status: str, seconds: float, out: Path) -> None:
    """A job that has ended without an outcome was killed, or never started."""
    if status.startswith("FINISHED") or status in ("None", ""):
        raise UserError(
            f"the job ended before its run did ({status}): see fedssca deploy logs; "
            f"continue with: fedssca deploy submit --resume {out}"
        )
    if seconds > 300 and status == "SUBMITTED":
        raise UserError("the server has not started the job in 5 minutes: see its log")


def _fetch(desk: Desk, job: str, out: Path, names: Sequence[str]) -> None:
    """Copies of the run's files, piece by piece."""
    for name in names:
        data = b""
        while True:
            piece = desk.say(job, {"file": name, "at": len(data)})
            if piece["size"] < 0:
                break
            data += base64.b64decode(piece["data"])
            if len(data) >= piece["size"] or not piece["data"]:
                (out / "checkpoint").mkdir(parents=True, exist_ok=True)
                RunDirectory(out).write(name, lambda file, data=data: file.write(data))  # type: ignore[misc]
                break


def write_job(folder: Path, ticket: Ticket, resume: bool, task: str = "train") -> None:
    """A job for the engine: it names installed classes, and no code comes with it."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    runtime = "nvflare.collab.runtime"
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "controller",
                "path": f"{runtime}.controller.CollabController",
                "args": {"server_obj_id": "_server", "sync_task_timeout": 120},
            }
        ],
        "components": [
            {
                "id": "_server",
                "path": f"{PARTS}Coordinator",
                "args": {**ticket._asdict(), "resume": resume, "task": task},
            }
        ],
    }
    site = {
        "format_version": 2,
        "executors": [
            {
                "tasks": ["*"],
                "executor": {
                    "path": f"{runtime}.executor.CollabExecutor",
                    "args": {"client_obj_id": "_client"},
                },
            }
        ],
        "components": [{"id": "_client", "path": f"{PARTS}Site", "args": {}}],
    }
    meta = {
        "name": "fedssca",
        "resource_spec": {},
        "deploy_map": {"app": ["server", *ticket.sites]},
        "min_clients": 1,
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_server.json").write_text(json.dumps(server))
    (config / "config_fed_client.json").write_text(json.dumps(site))
