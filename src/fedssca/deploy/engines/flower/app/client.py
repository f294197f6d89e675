"""The ClientApp: it passes messages on to the process that keeps the party of a site (`host`).

Flower may start a process for every message, so this module imports little.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedssca.deploy.engines.flower.channel import ask
from fedssca.deploy.engines.flower.kit import SETTINGS, open_kit
from fedssca.deploy.engines.flower.records import Record, content, packed, read, unpacked
from fedssca.deploy.processes import still_runs
from fedssca.deploy.project import site_names
from fedssca.errors import UserError

__all__ = ["LOOK", "Host", "host_of", "new_client_app"]

STARTING = 120.0
"""The seconds in which a host must begin to listen."""

LOOK = 0.2
"""The seconds between two looks whether a host listens, or whether Flower still runs."""

DETACHED = f"""
import subprocess, sys
command = [sys.executable, "-m", "{__package__}.host", *sys.argv[1:]]
print(subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True).pid)
"""
"""Starts a host and prints the number of its process, whose parent then ends: Ray kills the
children of a worker when it no longer needs the worker."""


class Host(NamedTuple):
    """Where a host listens, and what it is started with."""

    place: Path
    """Its socket."""
    task: dict[str, Any]
    """What it holds: the `kit` and `data` of a site, or the number of `sites` of a simulated `run`.
    `owner` is the process that it ends with, `log` the file for its output."""
    site: str
    """The site that asks."""

    def reply(self, run: int, record: Record) -> Record:
        """The party's answer to one message; the host is started if it does not run."""
        question = packed(record | {"about site": self.site, "about run": str(run)})
        try:
            return unpacked(ask(self.place, question))
        except (OSError, EOFError):
            if record.get("kind") == "bye":  # it has ended, or never began
                return {"kind": "bye"}
            self._start()
        try:
            return unpacked(ask(self.place, question))
        except (OSError, EOFError) as error:
            return {"kind": "error", "error": f"{self.site}: its party has ended: {error}"}

    def _start(self) -> None:
        """Start the host, unless another process has done so meanwhile."""
        with open(self.place.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _listens(self.place):
                return
            self.place.unlink(missing_ok=True)
            log = Path(self.task["log"])
            with open(log, "ab") as output:
                process = int(
                    subprocess.run(
                        [sys.executable, "-c", DETACHED, str(self.place), json.dumps(self.task)],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=output,
                        env=os.environ | SETTINGS,
                        check=True,
                    ).stdout
                )
            until = time.monotonic() + STARTING
            while not _listens(self.place):
                if not still_runs(process) or time.monotonic() > until:
                    last = log.read_text(errors="replace").strip().rpartition("\n")[2]
                    raise UserError(f"the party of {self.site} did not start: {last}; see {log}")
                time.sleep(LOOK)


def new_client_app() -> ClientApp:
    """The ClientApp: a site, which answers the messages of the ServerApp.

    A SuperNode names the site's kit and its site.toml in its node config (`kit`, `data`). Nodes of
    Flower's simulation have a number instead, and their share of the data of run.toml.
    """
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        host = host_of(context)
        return Message(content(host.reply(context.run_id, read(message))), reply_to=message)

    return app


def host_of(context: Context) -> Host:
    """The host for the node of this context."""
    node, owner = context.node_config, os.getppid()
    if "kit" in node or "data" in node:
        if not ("kit" in node and "data" in node):
            raise UserError("the node config needs both: kit, a folder, and data, a site.toml")
        kit = open_kit(Path(str(node["kit"])), "site")
        task: dict[str, Any] = {
            "kit": str(kit.path),
            "data": str(Path(str(node["data"])).absolute()),
        }
        place = _place(task, owner)
        return Host(place, task | {"owner": owner, "log": str(kit.log)}, kit.name)
    if "partition-id" not in node:
        raise UserError(
            'this SuperNode has no data: start it with --node-config \'kit="KIT" data="SITE.TOML"\''
        )
    sites, number = int(node["num-partitions"]), int(node["partition-id"])
    share: dict[str, Any] = {"sites": sites, "run": str(context.run_id)}
    place = _place(share, owner)
    share |= {"owner": owner, "log": str(place.with_suffix(".log"))}
    return Host(place, share, site_names(sites)[number])


def _place(task: Mapping[str, Any], owner: int) -> Path:
    """A socket in a folder that only this user can enter; its name has few characters."""
    folder = Path(tempfile.gettempdir()) / f"fedssca-hosts-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077 or folder.is_symlink():
        raise UserError(f"{folder} can be entered by others: remove it")
    name = hashlib.sha256(json.dumps([task, owner], sort_keys=True).encode()).hexdigest()
    return folder / f"{name[:16]}.sock"


def _listens(place: Path) -> bool:
    try:
        return unpacked(ask(place, packed({"kind": "listens"})))["kind"] == "listens"
    except (OSError, EOFError):
        return False
