"""The data of a simulated run given out as sites' files: what `deploy local` starts from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedssca.data import Columns
from fedssca.run.build import load_dataset, share_out
from fedssca.run.config import Config

__all__ = ["give_out", "site_names"]


def site_names(count: int) -> list[str]:
    """site-1, site-2, ..."""
    return [f"site-{i + 1}" for i in range(count)]


def give_out(config: Config, sites: int, folder: Path) -> list[Path]:
    """One site.toml a site, with the very rows (or columns) that client i has in the simulator.

    Test rows are dealt out too: each site evaluates its own, sums add up to the same.
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
