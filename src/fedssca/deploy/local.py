"""Everything on one machine in one command: real processes, real certificates, loopback only."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedssca.config import Config
from fedssca.deploy.kit import SITE_FILE, Kit, running
from fedssca.deploy.project import Project, provision
from fedssca.deploy.share import give_out, site_names
from fedssca.processes import free_port

__all__ = ["Field", "field"]


class Field(NamedTuple):
    """A server and its sites, running."""

    kits: dict[str, Kit]
    sites: list[str]


@contextmanager
def field(config: Config, sites: int, logs: Path | None = None) -> Iterator[Field]:
    """A server and `sites` sites for the data of a simulated run; all gone at the end.

    What the processes said is left in `logs` when the block ends in an error.
    """
    names = site_names(sites)
    with tempfile.TemporaryDirectory(prefix="fedssca-") as scratch:
        folder = Path(scratch)
        files = give_out(config, sites, folder / "data")
        made = provision(Project("local", "localhost", free_port(), names), folder / "kits")
        kits = {party: Kit(made[party]) for party in ("server", "submit", *names)}
        children = [kits["server"].start()]
        with running(children):
            for name, file in zip(names, files, strict=True):
                children.append(kits[name].start({SITE_FILE: str(file)}))
            try:
                yield Field(kits, names)
            except Exception:
                if logs is not None:
                    logs.mkdir(parents=True, exist_ok=True)
                    for party, kit in kits.items():
                        if kit.log.exists():
                            shutil.copy(kit.log, logs / f"{party}.log")
                raise
