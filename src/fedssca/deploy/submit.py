"""The submitting side: start a run, follow it, and copy its run directory.

The server keeps the run, with its checkpoints, in its kit. The submitting side has a copy that
grows as rows come, with a file deploy.json that identifies the run. If a site is lost, the run is
submitted again when the site is back, and continues from its last checkpoint.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.deploy.engine import JobNotReady, JobOrder, ServerUnreachable, Session
from fedssca.deploy.outcome import ENDED, GROWING_FILES, ROW_FILES, RUN_FILES
from fedssca.errors import UserError
from fedssca.run.record import RunDirectory

__all__ = ["Follower", "SubmittedRun", "ask_for", "await_sites", "follow", "stop"]

PAUSE = 0.5
"""The seconds between two looks at a job."""

ATTEMPTS = 3
"""The number of submissions without a new round after which a run is given up."""

STOPPING = 5.0
"""The seconds that a job that is to stop waits until its follower has seen it."""

CONNECTING = 20.0
"""The least number of seconds that the server has to answer while sites are awaited."""

STARTING = 300.0
"""The seconds in which the server must start a submitted job."""


class SubmittedRun(NamedTuple):
    """A run that was submitted: the content of deploy.json."""

    run: str
    sites: list[str]
    config: str

    @classmethod
    def new(cls, sites: Sequence[str], config: str) -> SubmittedRun:
        """A run with an identifier of its own."""
        return cls(secrets.token_hex(16), list(sites), config)

    @classmethod
    def read(cls, folder: Path) -> SubmittedRun:
        """Read deploy.json in a run directory."""
        try:
            return cls(**json.loads((folder / "deploy.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{folder} holds no deployed run (no deploy.json): {error}") from error

    def write(self, folder: Path) -> None:
        """Write deploy.json into a run directory."""
        RunDirectory(folder).make()
        RunDirectory(folder).write(
            "deploy.json", lambda file: file.write(json.dumps(self._asdict()).encode())
        )

    def order(self, resume: bool, task: str = "train", longer: str = "") -> JobOrder:
        """The order for the server; `longer` is a setting of `run.more`."""
        return JobOrder(**self._asdict(), resume=resume, task=task, longer=longer)


class Follower(NamedTuple):
    """What is shown while a run is followed."""

    row: Callable[[dict[str, Any], Sequence[str]], None]
    """Sees a row of metrics, and the sites that are alive."""
    say: Callable[[str], None]
    """Sees a line about an event."""


def await_sites(
    session: Session, sites: Sequence[str], seconds: float, after: dict[str, float] | None = None
) -> None:
    """Wait until all sites are connected, and were heard from later than `after`."""
    until, missing = time.monotonic() + seconds, list(sites)
    while missing:
        here = session.connected(max(CONNECTING, seconds))
        missing = [
            site for site in sites if site not in here or here[site] <= (after or {}).get(site, 0.0)
        ]
        if missing and time.monotonic() > until:
            raise UserError(f"{', '.join(missing)} not connected: start fedssca deploy site there")
        if missing:
            time.sleep(PAUSE)


def stop(session: Session, job: str) -> None:
    """End a job; its follower is told first, because it would otherwise wait for the sites."""
    until = time.monotonic() + STOPPING
    with suppress(JobNotReady):
        while not session.command(job, {"stop": True})["taken"] and time.monotonic() < until:
            time.sleep(PAUSE)
    session.abort(job)


def follow(
    session: Session,
    run: SubmittedRun,
    out: Path,
    resume: bool,
    tell: Follower,
    wait: float,
    longer: str = "",
) -> dict[str, Any]:
    """Submit a run and follow it to its end; returns the content of result.json.

    With `longer`, a setting of `run.more`, a run that exists goes on to more rounds.
    """
    with RunDirectory(out).locked():
        best, vain = -1, 0
        while True:
            await_sites(session, run.sites, wait)
            job = session.submit(run.order(resume, longer=longer))
            try:
                outcome = _watch(session, job, out, tell)
            except ServerUnreachable as error:
                again = f"fedssca deploy submit --resume {out}"
                raise UserError(f"{error} When it is back: {again}") from error
            except BaseException:
                session.abort(job)
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
                    f"{outcome['message']} at round {outcome['round']}; go on from its last "
                    f"checkpoint with: fedssca deploy submit --resume {out}"
                )
            vain = 0 if outcome["round"] > best else vain + 1
            best = max(best, outcome["round"])
            if vain == ATTEMPTS:
                raise UserError(f"{outcome['message']}; this happened {ATTEMPTS} times in a row")
            heard = session.connected()
            session.abort(job)
            names = ", ".join(outcome["sites"])
            tell.say(f"paused: {outcome['message']}; waiting for {names}")
            await_sites(session, outcome["sites"], wait, heard)
            tell.say(f"{names} back: the run goes on")
            resume = True


def ask_for(
    session: Session, run: SubmittedRun, out: Path, task: str, wait: float
) -> dict[str, Any]:
    """Submit a job that ends with an answer instead of a run; returns the answer."""
    await_sites(session, run.sites, wait)
    job = session.submit(run.order(True, task))
    silent = Follower(lambda row, live: None, lambda line: None)
    try:
        outcome = _watch(session, job, out, silent)
    finally:
        session.abort(job)
    if outcome["state"] != "done":
        raise UserError(outcome["message"])
    return dict(outcome["answer"])


def _watch(session: Session, job: str, out: Path, tell: Follower) -> dict[str, Any]:
    """Show rows as they come until the job has an outcome, then copy its files."""
    shown, told, begun = 0, 0, time.monotonic()
    copies = FileCopies(session, job, out)
    while True:
        try:
            said = session.command(job, {"rows_from": shown})
            ended = said["outcome"]["state"] in ENDED
            if said["rows"] or ended:
                copies.fetch(ended)
        except JobNotReady:
            _check_alive(session.status(job), time.monotonic() - begun, out)
            time.sleep(PAUSE)
            continue
        for row in said["rows"]:
            tell.row(row, said["live"])
        for event in said["events"][told:]:
            tell.say(f"round {event['round']}: {event['site']} {event['event']}")
        shown, told = shown + len(said["rows"]), len(said["events"])
        if ended:
            with suppress(JobNotReady):
                session.command(job, {"taken": True})
            return dict(said["outcome"]) | {"round": said["round"]}
        time.sleep(PAUSE)


def _check_alive(status: str, seconds: float, out: Path) -> None:
    """Raise a UserError if a job ended without an outcome, or does not start."""
    if status.startswith("FINISHED") or status in ("None", ""):
        raise UserError(
            f"the job ended before its run did ({status}): see fedssca deploy logs; "
            f"continue with: fedssca deploy submit --resume {out}"
        )
    if seconds > STARTING and status == "SUBMITTED":
        raise UserError("the server has not started the job in 5 minutes: see its log")


class FileCopies:
    """Copies of the files of a job's run directory, each byte of rows fetched once."""

    def __init__(self, session: Session, job: str, out: Path) -> None:
        self._session, self._job, self._out = session, job, out
        self._have: dict[str, int] = {}
        """The number of bytes of each file that were copied in this job."""

    def fetch(self, ended: bool) -> None:
        """Copy what is new: while the run goes on, rows; when it has ended, all files.

        While it goes on it has no result: that of a run with fewer rounds is deleted.
        """
        if not ended:
            RunDirectory(self._out).delete("result.json")
        for name in RUN_FILES if ended else GROWING_FILES:
            if name in ROW_FILES and name in self._have:
                self._append(name)
            elif ended or name not in self._have:
                self._replace(name)

    def _replace(self, name: str) -> None:
        data = self._bytes(name, 0)
        if data is None:
            return
        (self._out / "checkpoint").mkdir(mode=0o700, parents=True, exist_ok=True)
        RunDirectory(self._out).write(name, lambda file: file.write(data))
        self._have[name] = len(data)

    def _append(self, name: str) -> None:
        data = self._bytes(name, self._have[name])
        if data is None:  # the server's file is shorter than the copy: another one took its place
            self._replace(name)
        elif data:
            RunDirectory(self._out).extend(name, self._have[name], data)
            self._have[name] += len(data)

    def _bytes(self, name: str, at: int) -> bytes | None:
        """The bytes of a file from `at` on, piece by piece; None if it does not reach that far."""
        data = b""
        while True:
            piece = self._session.command(self._job, {"file": name, "at": at + len(data)})
            if piece["size"] < at:
                return None
            data += base64.b64decode(piece["data"])
            if at + len(data) >= piece["size"] or not piece["data"]:
                return data
