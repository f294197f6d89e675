"""Startup kits and the processes that run from them; a process ends with the one that started it.

python -m fedssca.deploy.kit KIT      the engine of a kit: server or site
"""

from __future__ import annotations

import json
import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedssca.deploy import require_engine
from fedssca.errors import UserError
from fedssca.system import COMMAND, end_with_parent

__all__ = ["Kit", "running"]

PARTS = "fedssca.deploy.parts."
TOPIC = "fedssca"
"""The name of the submitting side's commands to a job."""
FILES = (
    "config.toml",
    "metrics.jsonl",
    "problem.json",
    "sites.jsonl",
    "events.jsonl",
    "model.npz",
    "census.json",
    "result.json",
)
"""What the submitting side takes home, the result last."""
SITE_FILE = "FEDSSCA_SITE"
"""The variable that tells a job's process where its site.toml is."""
ALLOWED = [
    PARTS,
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
]
SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "MALLOC_ARENA_MAX": "2",
    "NVFLARE_STREAMING_RETRY_TIMEOUT": "5",
}
"""Few arenas for the engine's many threads. It keeps a thread for every answer as long as that may
be sent again: a minute by default, thousands of threads and their memory at 50 rounds a second."""
MODULES = {"server": "server.server_train", "site": "client.client_train"}
RIGHTS = {
    "submit_job": "any",
    "clone_job": "none",
    "manage_job": "any",
    "download_job": "none",
    "view": "any",
    "operate": "any",
    "shell_commands": "none",
    "app_command": "any",
    "byoc": "none",
    "server-predeployed-flwr": "none",
}
"""What the submitter may do: no code of its own ("byoc"), no shell at a site."""


class Kit:
    """A party's folder, as `deploy provision` made it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        found = [
            kind
            for kind, file in (("server", "server"), ("site", "client"), ("submit", "admin"))
            if (self.path / "startup" / f"fed_{file}.json").is_file()
        ]
        if not found:
            raise UserError(f"{path} is no startup kit: name a folder of fedssca deploy provision")
        self.kind = found[0]
        file = {"server": "server", "site": "client", "submit": "admin"}[self.kind]
        self._settings = _json(self.path / "startup" / f"fed_{file}.json")

    @classmethod
    def of(cls, path: Path, kind: str) -> Kit:
        """A kit of this kind, or a UserError that says which one it is."""
        kit = cls(path)
        if kit.kind != kind:
            raise UserError(f"{path} is the kit of a {kit.kind}: this command needs a {kind}'s")
        return kit

    @property
    def name(self) -> str:
        """The site's name, or the submitter's."""
        if self.kind == "site":
            return str(self._settings["client"]["fqsn"])
        return str(self._settings["admin"]["username"]) if self.kind == "submit" else "server"

    @property
    def sites(self) -> list[str]:
        """All sites of the project in their order; the submitter's kit knows them."""
        file = self.path / "sites.json"
        try:
            return list(map(str, json.loads(file.read_text())))
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read ({error}): is the kit complete?") from error

    @property
    def address(self) -> str:
        """host:port of the server."""
        if self.kind == "submit":
            return f"{self._settings['admin']['host']}:{self._settings['admin']['port']}"
        return str(self._settings["servers"][0]["service"]["target"])

    @property
    def log(self) -> Path:
        """What the process says."""
        return self.path / "console.log"

    def prepare(self) -> None:
        """Write what depends on where the kit lies: stores, logs, and who may do what here."""
        local = self.path / "local"
        resources = _json(local / "resources.json.default")
        resources["class_allow_list"] = ALLOWED
        if self.kind == "site":
            resources["allow_log_streaming"] = False  # what a site logs stays there
        for part in resources["components"]:
            if part["id"] == "job_manager":
                part["args"]["uri_root"] = str(self.path / "jobs")
            if part["id"] == "process_launcher" and self.kind == "site":
                part["path"] = f"{PARTS}Launcher"
        if self.kind == "server":
            store = resources["snapshot_persistor"]["args"]["storage"]["args"]
            store["root_dir"] = str(self.path / "snapshots")
            resources["servers"][0]["heart_beat_timeout"] = 30
            (self.path / "runs").mkdir(exist_ok=True)
        rights = {"format_version": "1.0", "permissions": {"project_admin": RIGHTS}}
        logs = _json(local / "log_config.json.default")
        logs["handlers"] = {k: v for k, v in logs["handlers"].items() if "File" not in k}
        logs["loggers"]["root"]["handlers"] = ["consoleHandler"]
        logs["loggers"] |= {
            name: {"level": "WARNING"} for name in ("collab", "nvflare.collab", "CellDispatcher")
        }
        for name, content in (("resources", resources), ("authorization", rights)):
            (local / f"{name}.json").write_text(json.dumps(content, indent=2))
        (local / "log_config.json").write_text(json.dumps(logs, indent=2))

    def start(self, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """The engine of this kit as a child process that says what it says to `log`."""
        require_engine()
        self.prepare()
        more = environment or {}
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "fedssca.deploy.kit", str(self.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | SETTINGS | {COMMAND: str(os.getpid())} | more,
                cwd=self.path,
                start_new_session=True,
            )

    def run(self) -> None:
        """Be the engine; returns when it ends."""
        option = {"server": "fed_server.json", "site": "fed_client.json"}[self.kind]
        more = [f"uid={self.name}"] if self.kind == "site" else []
        module = f"nvflare.private.fed.app.{MODULES[self.kind]}"
        sys.argv = [module, "-m", str(self.path), "-s", option, "--set"]
        sys.argv += ["secure_train=true", "org=fedssca", "config_folder=config", *more]
        runpy.run_module(module, run_name="__main__")


@contextmanager
def running(processes: Mapping[str, subprocess.Popen[bytes]]) -> Iterator[None]:
    """However this block is left, the processes in it have ended, and their jobs with them."""
    try:
        yield
    finally:
        import psutil  # comes with the engine

        family = []
        for process in processes.values():
            with suppress(psutil.Error):
                top = psutil.Process(process.pid)
                family += [*top.children(recursive=True), top]
        for member in family:
            with suppress(psutil.Error):
                member.terminate()
        _, alive = psutil.wait_procs(family, timeout=5)
        for member in alive:
            with suppress(psutil.Error):
                member.kill()
        psutil.wait_procs(alive, timeout=5)
        for process in processes.values():
            process.wait()


def _json(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error}): is the kit complete?") from error
    return content


def main() -> None:
    """Run the kit that the command line names."""
    end_with_parent()
    logging.captureWarnings(True)
    Kit(Path(sys.argv[1])).run()


if __name__ == "__main__":
    main()
