"""Startup kits for Flower, and the processes that run from them."""

from __future__ import annotations

import json
import os
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
    "KIT_FILE",
    "SETTINGS",
    "SITES",
    "SITE_FILE",
    "SUBMITTER",
    "FlowerKit",
    "is_kit",
    "open_kit",
]

KIT_FILE = "flower.json"
"""The file in a kit's folder `startup` that says whose kit it is, and where the server is."""

SITES = "sites.json"
"""The signed list of the project's parties, in the folder of every kit."""

SITE_FILE = "FEDSSCA_SITE"
"""The environment variable that tells a site's process where its site.toml is."""

SUBMITTER = "submit"

SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "MALLOC_ARENA_MAX": "2",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
}
"""Nothing is reported to Flower's makers, and nothing is fetched from the internet."""


def is_kit(path: Path) -> bool:
    """Whether this folder is a kit of this engine."""
    return (path / "startup" / KIT_FILE).is_file()


def open_kit(path: Path, kind: str = "") -> FlowerKit:
    """Open a kit; a UserError if it is not one of this kind (server, site or submit)."""
    kit = FlowerKit(path)
    check_kind(path, kit.kind, kind)
    return kit


class FlowerKit:
    """A party's folder, as `deploy provision --engine flower` made it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.startup = self.path / "startup"
        file = self.startup / KIT_FILE
        if not file.is_file():
            raise UserError(f"{path} is no startup kit: name a folder of fedssca deploy provision")
        try:
            self.settings: dict[str, Any] = json.loads(file.read_text())
            self.kind, self.name = str(self.settings["kind"]), str(self.settings["name"])
            self.address = f"{self.settings['server']}:{self.settings['port']}"
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{file} cannot be read ({error}): is the kit complete?") from error

    @property
    def root(self) -> Path:
        """The certificate of the project's CA."""
        return self.startup / "rootCA.pem"

    @property
    def sites(self) -> list[str]:
        """All sites of the project in their order, from the list that the CA signed."""
        return read_roster(self.path / SITES, self.root).sites

    @property
    def log(self) -> Path:
        """The file that the kit's process writes its output to."""
        return self.path / "console.log"

    def start(
        self, data: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the kit's process, which ends with this one; `data` is a site's site.toml."""
        site = {SITE_FILE: str(data.absolute())} if data else {}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        home = {"PATH": path, "FLWR_HOME": str(self.path / "flwr")}
        more = {**SETTINGS, **home, COMMAND: str(os.getpid()), **site, **(environment or {})}
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
