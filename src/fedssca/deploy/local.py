"""A whole deployment on one machine: real processes and certificates, loopback only."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from fedssca.data import Columns, Dataset, Rows
from fedssca.data.calibration import with_calibration
from fedssca.data.encode.label_sets import has_label
from fedssca.data.load import encoded
from fedssca.data.raw import RawData
from fedssca.data.tables import write_csv
from fedssca.deploy.engine import Engine, Kit
from fedssca.deploy.processes import ending
from fedssca.deploy.project import site_names
from fedssca.errors import UserError
from fedssca.run.build import data_source, encoding_rules, share_out
from fedssca.run.config import Config
from fedssca.run.schema import ProjectFile
from fedssca.run.schema.types import LARGEST
from fedssca.system import free_port

__all__ = ["LocalDeployment", "local_deployment", "one_place_limits", "write_site_files"]

ONE_PLACE = {
    "least_rows": 1,
    "most_kinds": 1000,
    "least_batch": 1,
    "least_sites": 1,
    "least_neighbours": 1,
    "most_rounds": LARGEST,
}
"""The limits of sites whose data all lie on this machine: what they tell is merged with nothing, so
that the model is that of the simulator. They allow the functions that the run itself names."""


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


def write_site_files(
    config: Config, sites: int, folder: Path, names: Sequence[str] = ()
) -> list[Path]:
    """Write one site.toml and the files of each site, with the data of client i of the simulator.

    The files are named after the sites: `names`, or site-1, site-2, ...

    Test rows are shared out too, because each site evaluates its own. Sites that hold rows of a
    table get raw rows, which they encode together as sites elsewhere do. Arrays, and the features
    of parties with columns, are written as the simulator holds them.
    """
    config = replace(config, data=replace(config.data, clients=sites))
    raw = data_source(config).read()
    if config.calibration_fraction:  # the encoder of the simulator does not see these rows
        raw = with_calibration(raw, config.calibration_fraction, config.run.seed)
    dataset = encoded(raw, encoding_rules(config.data))
    clients = share_out(config.data, dataset, config.run.seed)
    if clients.count != sites:
        raise UserError(
            f"the data have {clients.count} clients, one for each site, and {sites} sites are to "
            f"start: set --sites {clients.count}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    ids = named = None
    if isinstance(raw, RawData) and raw.ids is not None:
        # Test rows of a file of their own have no ids in the simulator.
        more = [f"test row {i}" for i in range(len(raw.y) - len(raw.ids))]
        ids = np.array([*map(str, raw.ids), *more])
        named = ids[raw.train], ids[~raw.train]
    for number, name in enumerate(names or site_names(sites)):
        if isinstance(raw, RawData) and isinstance(clients, Rows):
            site = _write_tables(raw, ids, clients, number, folder, name)
        else:
            site = _write_arrays(dataset, named, clients, number, folder, name)
        files.append(folder / f"{name}.toml")
        files[-1].write_text(tomli_w.dumps(site | {"limits": one_place_limits(config)}))
    return files


def one_place_limits(config: Config) -> dict[str, Any]:
    """The section [limits] of a site of this run whose data lie on this machine."""
    return ONE_PLACE | {"packages": [name.partition(":")[0] for name in config.functions]}


def _write_tables(
    raw: RawData, ids: np.ndarray | None, clients: Rows, number: int, folder: Path, name: str
) -> dict[str, Any]:
    """Write the raw training and test rows of a site; returns its site.toml."""
    train, test = np.flatnonzero(raw.train), np.flatnonzero(~raw.train)
    own = train[clients.rows_of(number)]
    columns = raw.table | raw.label_columns
    columns |= {} if ids is None else {raw.id: ids}
    held = test[number :: clients.count]
    if raw.test_owners is not None:
        held = test[raw.test_owners == number]
    for end, rows in (("", own), ("-test", held)):
        write_csv(folder / f"{name}{end}.csv", {c: v[rows] for c, v in columns.items()})
    site = {"path": f"{name}.csv", "test_path": f"{name}-test.csv", "label": raw.label}
    return site if ids is None else site | {"id": raw.id}


def _write_arrays(
    dataset: Dataset,
    ids: tuple[np.ndarray, np.ndarray] | None,
    clients: Rows | Columns,
    number: int,
    folder: Path,
    name: str,
) -> dict[str, Any]:
    """Write the arrays of a site into one NPZ file; returns its site.toml."""
    own, features = dict(clients.client(number)), np.array(dataset.features)
    if isinstance(clients, Columns):
        block = clients.blocks[number]
        test = {n: v for n, v in dataset.test.items() if n in own}
        test["x"] = dataset.test["x"][:, block]
        own["ids"], test["ids"] = ids or (np.arange(len(own["x"])), np.arange(len(test["x"])))
        features = features[block]
    else:
        test = {n: v[number :: clients.count] for n, v in dataset.test.items()}
    for part in (own, test):
        if "y" in part and dataset.target is not None:
            part["y"] = dataset.target.decode(part["y"])
        elif "y" in part and dataset.sets:
            y = part.pop("y")
            part |= {str(name): has_label(y, k) for k, name in enumerate(dataset.labels)}
    arrays: dict[str, Any] = own | {f"{n}_test": v for n, v in test.items()}
    np.savez(folder / f"{name}.npz", features=features, **arrays)
    return {"path": f"{name}.npz", "scale": dataset.scale}
