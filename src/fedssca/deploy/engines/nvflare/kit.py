"""Startup kits of NVFlare, and the processes that run from them."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedssca.deploy.engine import check_kind
from fedssca.deploy.roster import read_roster
from fedssca.errors import UserError
from fedssca.system import COMMAND

__all__ = [
    "CLASSES",
    "SETTINGS",
    "SITES",
    "SITE_FILE",
    "SITE_KIT",
    "TOPIC",
    "NvflareKit",
    "is_kit",
    "open_kit",
]

CLASSES = "fedssca.deploy.engines.nvflare.job."
"""The module of the classes that a job may name."""

LAUNCHER = "fedssca.deploy.engines.nvflare.launcher.JobLauncher"
"""The class with which a site starts the processes of jobs; no job may name it."""

TOPIC = "fedssca"
"""The name of the submitting side's commands to a job."""

SITES = "sites.json"
"""The signed list of the project's parties, in the folder of every kit."""

SITE_FILE = "FEDSSCA_SITE"
"""The environment variable that tells a job's process where its site.toml is.

"{site}" in it stands for the name of the site, where one machine runs several of them. Without the
variable, the file `local/site.toml` of the site's NVFlare workspace is used."""

SITE_KIT = "FEDSSCA_KIT"
"""The environment variable with the folder of the kit whose certificate a site signs with.

"{site}" stands for its name. Without the variable, it is the kit that the site was started from."""

RECIPE_SERVER = "fedssca.deploy.engines.nvflare.recipe.server.RecipeServer"
"""The server's class of a job that a recipe made."""

ALLOWED = [
    CLASSES,
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
]
"""What a job may name at a party."""

ALLOWED_AT_SERVER = [
    RECIPE_SERVER,
    "nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver",
]
"""What else a job may name at the server: NVFlare's writer of TensorBoard files writes into the
folder of the job only. Receivers that send metrics elsewhere, such as MLflow's, are not in it."""

SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "MALLOC_ARENA_MAX": "2",
    "NVFLARE_STREAMING_RETRY_TIMEOUT": "5",
}
"""Limits on memory. The engine has many threads, so few arenas are used. It also keeps one thread
per answer as long as the answer may be sent again: a minute by default, which at 50 rounds per
second would be thousands of threads."""

MODULES = {"server": "server.server_train", "site": "client.client_train"}

FILES = {"server": "fed_server.json", "site": "fed_client.json", "submit": "fed_admin.json"}
"""The file in a kit's folder `startup` by which its kind is recognised."""

RIGHTS = {
    "submit_job": "any",
    "clone_job": "none",
    "manage_job": "any",
    "download_job": "any",
    "view": "any",
    "operate": "any",
    "shell_commands": "none",
    "app_command": "any",
    "byoc": "none",
    "server-predeployed-flwr": "none",
}
"""What the submitter may do: bring no code of its own ("byoc"), and open no shell at a site. The
folder of a job, which can be downloaded, has its settings and what the submitter gets anyway."""


def is_kit(path: Path) -> bool:
    """Whether this folder is a kit of this engine."""
    return any((path / "startup" / file).is_file() for file in FILES.values())


def open_kit(path: Path, kind: str = "") -> NvflareKit:
    """Open a kit; a UserError if it is not one of this kind (server, site or submit)."""
    kit = NvflareKit(path)
    check_kind(path, kit.kind, kind)
    return kit


class NvflareKit:
    """A party's folder, as `deploy provision` made it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        startup = self.path / "startup"
        found = [kind for kind, file in FILES.items() if (startup / file).is_file()]
        if not found:
            raise UserError(f"{path} is no startup kit: name a folder of fedssca deploy provision")
        self.kind = found[0]
        self._settings = _json(startup / FILES[self.kind])

    @property
    def name(self) -> str:
        """The party's name."""
        if self.kind == "site":
            return str(self._settings["client"]["fqsn"])
        return str(self._settings["admin"]["username"]) if self.kind == "submit" else "server"

    @property
    def sites(self) -> list[str]:
        """All sites of the project in their order, from the list that the CA signed."""
        return read_roster(self.path / SITES, self.path / "startup" / "rootCA.pem").sites

    @property
    def address(self) -> str:
        """The server's host and port."""
        if self.kind == "submit":
            return f"{self._settings['admin']['host']}:{self._settings['admin']['port']}"
        return str(self._settings["servers"][0]["service"]["target"])

    @property
    def log(self) -> Path:
        """The file that the kit's process writes its output to."""
        return self.path / "console.log"

    def prepare(self) -> None:
        """Write the settings that depend on the kit's place, and who may do what here."""
        local = self.path / "local"
        resources = _json(local / "resources.json.default")
        more = ALLOWED_AT_SERVER if self.kind == "server" else []
        resources["class_allow_list"] = [*ALLOWED, *more]
        if self.kind == "site":
            resources["allow_log_streaming"] = False  # what a site logs stays there
        for part in resources["components"]:
            if part["id"] == "job_manager":
                part["args"]["uri_root"] = str(self.path / "jobs")
            if part["id"] == "process_launcher" and self.kind == "site":
                part["path"] = LAUNCHER
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

    def start(
        self, data: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the kit's process, which ends with this one; `data` is a site's site.toml."""
        self.prepare()
        site = {SITE_FILE: str(data.absolute())} if data else {}
        more = {**SETTINGS, COMMAND: str(os.getpid()), **site, **(environment or {})}
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", __package__, str(self.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | more,
                cwd=self.path,
                start_new_session=True,
            )

    def run(self) -> None:
        """Be the engine of this kit; returns when it ends."""
        more = [f"uid={self.name}"] if self.kind == "site" else []
        module = f"nvflare.private.fed.app.{MODULES[self.kind]}"
        sys.argv = [module, "-m", str(self.path), "-s", FILES[self.kind], "--set"]
        sys.argv += ["secure_train=true", "org=fedssca", "config_folder=config", *more]
        runpy.run_module(module, run_name="__main__")


def _json(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error}): is the kit complete?") from error
    return content
