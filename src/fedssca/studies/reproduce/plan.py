"""The plan of a reproduction: which runs are missing, where they are evaluated, what they cost."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedssca.data.fetch import DOWNLOADS, locate
from fedssca.errors import UserError
from fedssca.run.build import load_dataset
from fedssca.run.config import Config, parse, render
from fedssca.studies.reproduce.cache import Cache, run_key
from fedssca.studies.reproduce.experiment import Curve, Experiment
from fedssca.studies.reproduce.verdict import ROUNDS

__all__ = ["PlannedRuns", "evaluated", "keys", "plan"]

GROWTH = 1.12
"""The ratio of successive evaluated rounds."""
LARGE = 1000
"""The number of samples per client and round from which every seed is planned separately."""

# Seconds on one core of a desktop with full MNIST. Only their ratio matters, for the progress bar.
START, EVALUATION, ROUND, SAMPLE, LOCAL_STEP = 4.0, 0.25, 0.8e-3, 6e-6, 0.55e-3


@dataclass(frozen=True)
class PlannedRuns:
    """Work for one process: one curve with one or more seeds."""

    label: str
    task: str
    configs: tuple[Config, ...]
    keys: tuple[str, ...]
    evaluate_at: tuple[int, ...]

    @property
    def cost(self) -> float:
        """The estimated number of seconds."""
        config, data = self.configs[0], self.configs[0].data
        chosen, clients = config.algorithm, data.clients if data.split == "sample" else 1
        steps = clients * chosen.local_steps
        per_round = ROUND + SAMPLE * chosen.batch * steps
        if chosen.local_steps > 1:
            per_round += LOCAL_STEP * steps
        each = chosen.most_rounds * per_round + EVALUATION * len(self.evaluate_at)
        return START + len(self.configs) * each * (2 if self.task == "identity" else 1)


def evaluated(rounds: int) -> tuple[int, ...]:
    """Return the rounds to evaluate: dense early, sparse late, with the last and all ROUNDS."""
    last, at = rounds - 1, [0.0, 1.0, 2.0, 3.0]
    while at[-1] < last:
        at.append(max(at[-1] + 2, at[-1] * GROWTH))
    apart = [int(t) for t in at if all(abs(t - c) > 0.02 * c for c in ROUNDS)]
    return tuple(sorted({t for t in (*apart, *ROUNDS) if t < last} | {last}))


def keys(curve: Curve, runs: int) -> list[str]:
    """Return the cache keys of the runs of a curve, one per seed from 0 on."""
    at, data = evaluated(curve.config.algorithm.most_rounds), data_mark(curve.config)
    return [
        run_key(curve.task, _seeded(curve.config, seed), at, data) for seed in curve.seeds(runs)
    ]


def plan(panels: Iterable[Experiment], runs: int, cache: Cache) -> list[PlannedRuns]:
    """Return the missing runs, panel by panel, the longest first."""
    out: list[PlannedRuns] = []
    seen: set[str] = set()
    for panel in panels:
        items: list[PlannedRuns] = []
        for curve in panel.curves:
            named = keys(curve, runs)
            open_seeds = [
                s for s, key in enumerate(named) if key not in seen and cache.get(key) is None
            ]
            seen.update(named)
            items += _items(curve, open_seeds, named)
        out += sorted(items, key=lambda item: -item.cost)
    return out


def _items(curve: Curve, seeds: Sequence[int], named: Sequence[str]) -> list[PlannedRuns]:
    groups = [[seed] for seed in seeds] if curve.work >= LARGE else [list(seeds)]
    at = evaluated(curve.config.algorithm.most_rounds)
    return [
        PlannedRuns(
            curve.label,
            curve.task,
            tuple(_seeded(curve.config, seed) for seed in group),
            tuple(named[seed] for seed in group),
            at,
        )
        for group in groups
        if group
    ]


def _seeded(config: Config, seed: int) -> Config:
    return replace(config, run=replace(config.run, seed=seed))


def located(panel: Experiment, folder: Path | None) -> Experiment:
    """Return the panel with its data in `folder`."""
    if folder is None:
        return panel

    def moved(curve: Curve) -> Curve:
        data = replace(curve.config.data, dir=str(folder.expanduser().absolute()))
        return replace(curve, config=replace(curve.config, data=data))

    return replace(panel, curves=tuple(map(moved, panel.curves)))


def data_mark(config: Config) -> str:
    """Return a digest of the rows themselves, independent of where they are stored."""
    return _mark(render(Config(data=config.data)))


@functools.cache
def _mark(text: str) -> str:
    config = parse(text)
    data = config.data
    where = Path(data.dir) if data.dir else None
    if not data.path and data.name in DOWNLOADS and locate(data.name, where) is None:
        place = f" in {data.dir}" if data.dir else " on this machine"
        raise UserError(
            f"{data.name} is not{place}: fetch it with: fedssca data get {data.name} "
            "(or point --data at the folder that holds its files)"
        )
    dataset = load_dataset(config)
    digest = hashlib.sha256(f"{dataset.classes} {dataset.scale}\n".encode())
    for part in (dataset.train, dataset.test):
        for name, column in sorted(part.items()):
            digest.update(f"{name} {column.dtype} {column.shape}\n".encode())
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
