"""Seconds a deployed round, against the bare engine moving the same bytes.

Four sites on loopback with real certificates, d = 101,632 (784-128-10). Ten rounds of the run and
ten bare rounds take turns within one job, so both see the same machine; means are shown.

    rows      B = 10     a bare Collab echo: the request down, an answer of the same size up
    columns   B = 100    a bare exchange: block down, h_i encrypted to every peer, block up

`python benchmarks/deploy.py equal` compares models instead: 50 rounds on digits at four sites,
deployed and simulated, for Algorithms 1-4 and local momentum SGD.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from cells import markdown
from turns import RUN, table_row, write_images

from fedssca.deploy.engines import nvflare
from fedssca.deploy.local import local_deployment
from fedssca.deploy.submit import Follower, SubmittedRun, follow
from fedssca.run.config import parse, render
from fedssca.run.execute import execute
from fedssca.studies.bench.sites import running_sites


def main() -> None:
    kinds = (
        ("sample", 10, "rows, B = 10, compared with a Collab echo"),
        ("feature", 100, "columns, B = 100, compared with a two-phase encrypted exchange"),
    )
    table = []
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "images.npz"
        write_images(path)
        for split, batch, title in kinds:
            config = parse(RUN.format(path=path, split=split, batch=batch))
            table.append(table_row(title, measure(config, Path(scratch) / split)))
    print(markdown(table))


EQUAL = """
[data]
name = "digits"
clients = 4
[algorithm]
rounds = 50
rho = {a = 0.9, alpha = 0.1}
gamma = {a = 0.5, alpha = 0.1}
tau = 0.2
multipliers = "exact"
"""
LIMIT = ["problem.objective=norm", "problem.constraint=[{kind='loss', limit=0.5}]"]
METHODS = {
    "algorithm 1": [],
    "algorithm 2": LIMIT,
    "local momentum": ["algorithm.name=momentum", "algorithm.local_steps=5"],
    "algorithm 3": ["data.split=feature", "algorithm.batch=100"],
    "algorithm 4": ["data.split=feature", "algorithm.batch=100", *LIMIT],
}


def equal() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        for group in (list(METHODS)[:3], list(METHODS)[3:]):
            with (
                local_deployment(nvflare, parse(EQUAL, METHODS[group[0]]), 4) as made,
                nvflare.open_session(made.kits["submit"]) as connection,
            ):
                for name in group:
                    config = parse(EQUAL, METHODS[name])
                    folders = [Path(scratch) / f"{name} {kind}" for kind in ("here", "there")]
                    execute(config, folders[0])
                    run = SubmittedRun.new(made.sites, render(config))
                    run.write(folders[1])
                    tell = Follower(lambda row, live: None, lambda line: None)
                    follow(connection, run, folders[1], False, tell, 90.0)
                    models = [np.load(folder / "model.npz") for folder in folders]
                    gaps = [
                        np.linalg.norm(models[1][w] - models[0][w]) / np.linalg.norm(models[0][w])
                        for w in ("w_last", "w")
                    ]
                    print(f"{name:15} w(T) {gaps[0]:.1e}  returned {gaps[1]:.1e}", flush=True)


def measure(config: object, out: Path) -> dict[str, float]:
    with running_sites(config, 4, out / "logs") as running:
        return running.compare(config, out)


if __name__ == "__main__":
    equal() if sys.argv[1:] == ["equal"] else main()
