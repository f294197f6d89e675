"""What the submitting side may ask of the server: start jobs, watch them, end them."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from contextlib import suppress
from typing import Any

import tomli_w
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, Status
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.auth.typing import AccountInfo
from flwr.superlink.servicer.control.control_handlers import start_run

from fedssca.deploy.engine import JobOrder
from fedssca.deploy.engines.flower.channel import ask
from fedssca.deploy.engines.flower.job import JOBS
from fedssca.deploy.engines.flower.kit import SITES, SUBMITTER, FlowerKit
from fedssca.deploy.engines.flower.words import signed_bytes
from fedssca.deploy.processes import still_runs
from fedssca.deploy.signatures import SiteSignatures
from fedssca.privacy.sums.keys import Forged

__all__ = ["Desk"]

LOG = logging.getLogger(__name__)

FRESH = 300.0
"""The seconds by which the clocks of submitter and server may differ."""

APP = {
    "project": {"name": "fedssca-job", "version": "1.0.0", "license": "Apache-2.0"},
    "tool": {
        "flwr": {
            "app": {
                "publisher": "fedssca",
                "components": {
                    "serverapp": "fedssca.deploy.engines.flower.job:app",
                    "clientapp": "fedssca.deploy.engines.flower.client:app",
                },
                "config": {},
            }
        }
    },
}
"""The app of a job: it names installed code, and contains none."""


class Desk:
    """Answers requests that the submitter signed."""

    def __init__(self, kit: FlowerKit, state: LinkState) -> None:
        self._kit, self._state = kit, state
        self._known = SiteSignatures(kit.root, kit.path / SITES)
        self._seen: dict[str, float] = {}
        """The requests of the last minutes, none of which is taken twice."""

    def answer(self, body: bytes, signed: str) -> dict[str, Any] | None:
        """The answer to one request; None if it is not the submitter's."""
        try:
            self._known.verify(
                SUBMITTER, signed_bytes(body), bytes.fromhex(signed), today=True, role="submit"
            )
            asked = json.loads(body)
            name, what = str(asked["number"]), asked["what"]
            now = time.time()
            if abs(now - float(asked["time"])) > FRESH or name in self._seen:
                return None
            self._seen = {n: at for n, at in self._seen.items() if now - at < 2 * FRESH}
            self._seen[name] = now
            given = asked.get("with", {})
        except (Forged, ValueError, KeyError, TypeError):
            return None
        try:
            return {"answer": getattr(self, f"_on_{what}")(**given)}
        except NotReady as error:
            return {"not_ready": str(error)}
        except Exception as error:
            LOG.exception("the request %s was not answered", what)
            return {"refused": f"{type(error).__name__}: {error}"}

    def _on_connected(self) -> dict[str, float]:
        nodes = self._state.get_node_info(statuses=["online"])
        return {node.name: node.online_until for node in nodes}

    def _on_submit(self, order: dict[str, Any]) -> str:
        fab, _ = build_fab_from_files({"pyproject.toml": tomli_w.dumps(APP).encode()})
        request = StartRunRequest(fab=Fab(content=fab))
        account = AccountInfo(flwr_aid=NOOP_FLWR_AID, account_name=NOOP_ACCOUNT_NAME)
        folder = self._kit.path / JOBS
        folder.mkdir(mode=0o700, exist_ok=True)
        order = JobOrder(**order)._asdict()
        run = start_run(request, account, self._state, None).run_id
        waiting = folder / f"{run}.new"
        waiting.write_text(json.dumps(order))
        waiting.rename(folder / f"{run}.json")
        return str(run)

    def _on_command(self, job: str, asked: dict[str, Any]) -> dict[str, Any]:
        place = JOBS / f"{int(job)}.sock"
        try:
            return dict(json.loads(ask(place, json.dumps(asked).encode())))
        except (OSError, EOFError) as error:
            raise NotReady(f"job {job} does not run: {type(error).__name__}") from error

    def _on_status(self, job: str) -> str:
        return self._word(int(job))

    def _on_jobs(self) -> list[dict[str, Any]]:
        found = self._state.get_run_info()
        return [{"job_id": str(run.run_id), "status": self._word(run.run_id)} for run in found]

    def _on_abort(self, job: str) -> None:
        process = self._process(int(job))
        if process and still_runs(process):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._state.stop_run(int(job))

    def _word(self, job: int) -> str:
        """SUBMITTED, RUNNING, or FINISHED and how."""
        found = self._state.get_run_status({job}).get(job)
        if found is None:
            return ""
        if found.status == Status.FINISHED:
            return f"FINISHED:{found.sub_status}"
        process = self._process(job)
        if process and not still_runs(process):
            self._state.stop_run(job)
            return "FINISHED:KILLED"
        return "RUNNING" if found.status == Status.RUNNING else "SUBMITTED"

    def _process(self, job: int) -> int:
        file = self._kit.path / JOBS / f"{job}.pid"
        return int(file.read_text()) if file.is_file() else 0


class NotReady(Exception):
    """The job is not running yet, or no longer."""
