"""Everything on one machine in one command: real processes, real certificates, loopback only."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedssca.deploy.kit import SITE_FILE, Kit, running
from fedssca.deploy.project import provision
from fedssca.deploy.share import give_out, site_names
from fedssca.run.config import Config
from fedssca.run.schema import ProjectFile
from fedssca.system import free_port

__all__ = ["Field", "field"]


class Field(NamedTuple):
    """A server and its sites, running."""

    kits: dict[str, Kit]
    sites: list[str]
    files: dict[str, Path]
    """Each site's site.toml."""
    processes: dict[str, subprocess.Popen[bytes]]

    def start(self, party: str, environment: dict[str, str] | None = None) -> None:
        """Start a party, or start it again."""
        more = {SITE_FILE: str(self.files[party])} if party in self.files else {}
        self.processes[party] = self.kits[party].start(more | (environment or {}))


@contextmanager
def field(
    config: Config,
    sites: int,
    logs: Path | None = None,
    environment: dict[str, str] | None = None,
) -> Iterator[Field]:
    """A server and `sites` sites for the data of a simulated run; all gone at the end.

    What the processes said is left in `logs` when the block ends in an error.
    """
    names = site_names(sites)
    with tempfile.TemporaryDirectory(prefix="fedssca-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        files = give_out(config, sites, folder / "data")
        made = provision(ProjectFile("local", "localhost", free_port(), names), folder / "kits")
        kits = {party: Kit(made[party]) for party in ("server", "submit", *names)}
        made_up = Field(kits, names, dict(zip(names, files, strict=True)), {})
        with running(made_up.processes):
            for party in ("server", *names):
                made_up.start(party, environment)
            try:
                yield made_up
            except Exception:
                if logs is not None:
                    logs.mkdir(parents=True, exist_ok=True)
                    for party, kit in kits.items():
                        if kit.log.exists():
                            shutil.copy(kit.log, logs / f"{party}.log")
                raise
