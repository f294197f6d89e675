"""The submitting side's connection to an NVFlare server, and the files of a job."""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from fedssca.deploy.engine import UNREACHABLE, JobNotReady, JobOrder, Kit, ServerUnreachable
from fedssca.deploy.engines.nvflare.kit import CLASSES, TOPIC
from fedssca.errors import UserError

__all__ = ["NvflareSession", "open_session", "write_job"]

PAUSE = 0.5
"""The seconds between two attempts to connect."""

JOB_CLASSES = {"server": f"{CLASSES}JobServer", "site": f"{CLASSES}JobSite"}
"""The classes of the server's and of a site's object that a job names."""


def open_session(kit: Kit) -> closing[NvflareSession]:
    """Connect to the server with the submitter's kit; the session is closed at the end."""
    return closing(NvflareSession(kit))


class NvflareSession:
    """A connection to the server, reopened when it breaks."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._session: Any = None

    def close(self) -> None:
        """End the connection."""
        if self._session is not None:
            with suppress(Exception):
                self._session.close()
        self._session = None

    def connected(self, patience: float | None = None) -> dict[str, float]:
        """The sites that are connected, and when the server last heard from each."""
        clients = self._ask(lambda session: session.get_connected_client_list(), patience)
        return {client.name: float(client.last_connect_time) for client in clients}

    def submit(self, order: JobOrder) -> str:
        """Start a job and return the engine's identifier of it."""
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder) / "fedssca", order)
            job: str = self._ask(lambda session: session.submit_job(f"{folder}/fedssca"))
        return job

    def command(self, job: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Send a command to a running job; `JobNotReady` if it is not running."""
        return dict(self._ask(lambda session: session.do_app_command(job, TOPIC, asked)))

    def status(self, job: str) -> str:
        """The engine's word for the state of a job."""
        return str(self._ask(lambda session: session.get_job_status(job)))

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that the server knows."""
        return list(self._ask(lambda session: session.list_jobs()))

    def abort(self, job: str) -> None:
        """End a job, if it still exists."""
        with suppress(Exception):
            self._ask(lambda session: session.abort_job(job), PAUSE)

    def _ask(self, what: Callable[[Any], Any], patience: float | None = None) -> Any:
        """`what` of a session; `ServerUnreachable` if the server stays silent."""
        from nvflare.fuel.flare_api.api_spec import (
            AuthorizationError,
            InternalError,
            JobNotFound,
            JobNotRunning,
            NoReply,
        )

        until = time.monotonic() + (UNREACHABLE if patience is None else patience)
        while True:
            try:
                if self._session is None:
                    self._session = self._open(max(1.0, until - time.monotonic()))
                return what(self._session)
            except (JobNotFound, JobNotRunning, InternalError, NoReply) as error:
                raise JobNotReady(str(error)) from error
            except AuthorizationError as error:
                raise UserError(f"the server refuses: {' '.join(str(error).split())}") from error
            except Exception as error:  # a lost connection shows in many kinds of exceptions
                self.close()
                if time.monotonic() > until:
                    raise ServerUnreachable(
                        f"the server at {self._kit.address} does not answer "
                        f"({type(error).__name__}): is fedssca deploy server running there?"
                    ) from error
                time.sleep(PAUSE)

    def _open(self, timeout: float) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        with redirect_stdout(io.StringIO()):  # hide the engine's own greeting
            return new_secure_session(
                self._kit.name, str(self._kit.path), timeout=timeout, auto_login_max_tries=3
            )


def write_job(folder: Path, order: JobOrder) -> None:
    """Write the files of a job: they name installed classes, and contain no code."""
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
                "path": JOB_CLASSES["server"],
                "args": order._asdict(),
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
        "components": [{"id": "_client", "path": JOB_CLASSES["site"], "args": {}}],
    }
    meta = {
        "name": "fedssca",
        "resource_spec": {},
        "deploy_map": {"app": ["server", *order.sites]},
        "min_clients": 1,
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_server.json").write_text(json.dumps(server))
    (config / "config_fed_client.json").write_text(json.dumps(site))
