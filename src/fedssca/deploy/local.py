"""A whole deployment on one machine: real processes and certificates, loopback only."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from fedssca.data import Columns
from fedssca.deploy.engine import Engine, Kit
from fedssca.deploy.processes import ending
from fedssca.deploy.project import site_names
from fedssca.run.build import load_dataset, share_out
from fedssca.run.config import Config
from fedssca.run.schema import ProjectFile
from fedssca.system import free_port

__all__ = ["LocalDeployment", "local_deployment", "write_site_files"]


class LocalDeployment(NamedTuple):
    """A server and its sites, running."""

    kits: dict[str, Kit]
    sites: list[str]
    files: dict[str, Path]
    """The site.toml of each site."""
    processes: dict[str, subprocess.Popen[bytes]]

    def start(self, party: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a party, or start it again."""
        self.processes[party] = self.kits[party].start(self.files.get(party), environment)


@contextmanager
def local_deployment(
    engine: Engine,
    config: Config,
    sites: int,
    logs: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[LocalDeployment]:
    """Run a server and `sites` sites that hold the data of a simulated run.

    When the block ends, all processes have ended. If it ends in an error, the output of the
    processes is copied to `logs`.
    """
    names = site_names(sites)
    with tempfile.TemporaryDirectory(prefix="fedssca-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        files = write_site_files(config, sites, folder / "data")
        project = ProjectFile("local", "localhost", free_port(), names)
        made = engine.provision(project, folder / "kits")
        kits = {party: engine.open_kit(made[party]) for party in ("server", "submit", *names)}
        running = LocalDeployment(kits, names, dict(zip(names, files, strict=True)), {})
        with ending(running.processes):
            for party in ("server", *names):
                running.start(party, environment)
            try:
                yield running
            except Exception:
                if logs is not None:
                    logs.mkdir(parents=True, exist_ok=True)
                    for party, kit in kits.items():
                        if kit.log.exists():
                            shutil.copy(kit.log, logs / f"{party}.log")
                raise


def write_site_files(config: Config, sites: int, folder: Path) -> list[Path]:
    """Write one site.toml and one NPZ file per site, with the data of client i of the simulator.

    Test rows are shared out too, because each site evaluates its own. Arrays are written as the
    simulator holds them, already standardised where it standardises.
    """
    config = replace(config, data=replace(config.data, clients=sites))
    dataset = load_dataset(config)
    clients = share_out(config.data, dataset, config.run.seed)
    files = []
    for number, name in enumerate(site_names(sites)):
        own = dict(clients.client(number))
        if isinstance(clients, Columns):
            block = clients.blocks[number]
            test = {n: v for n, v in dataset.test.items() if n in own}
            test["x"] = dataset.test["x"][:, block]
            own["ids"] = np.arange(len(own["x"]))
            test["ids"] = np.arange(len(test["x"]))
            features = np.array(dataset.features)[block]
        else:
            test = {n: v[number::sites] for n, v in dataset.test.items()}
            features = np.array(dataset.features)
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = own | {f"{n}_test": v for n, v in test.items()}
        np.savez(folder / f"{name}.npz", features=features, **arrays)
        files.append(folder / f"{name}.toml")
        files[-1].write_text(tomli_w.dumps({"path": f"{name}.npz", "scale": dataset.scale}))
    return files
