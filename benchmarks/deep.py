"""Deep networks at defaults: images against tuned FedAvg, two banks against pooled columns.

    python benchmarks/deep.py images --data FOLDER [--rows 10000] [--rounds 150] [--seeds 1]
    python benchmarks/deep.py banks  --data FOLDER [--rounds 500] [--seeds 1]

`images` trains a convolutional network on MNIST with 10 clients, rows divided at random and by
Dirichlet(0.5), at default step sizes and with FedAvg at the best of four rates; both use the same
number of samples. `banks` trains a deep bottom for each of two banks (default_credit_hetero_guest
and _host) and the same network on pooled columns with one client, and prints held-out AUC. The
folder holds the files, in subfolders or not. FedAvg's rate is chosen by its test accuracy, which
favours it.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.metrics import roc_auc_score

from fedssca.run import execute
from fedssca.run.build import Job, build
from fedssca.run.config import parse

LOCAL = 5
RATES = (0.1, 0.3, 1.0, 3.0)
CNN = ["model.name=cnn", "model.channels=[8, 16]", "model.hidden=[64]", "algorithm.batch=16"]
BOTTOMS = ["model.bottom=[16, 8]", "model.hidden=[16]", "model.join=concatenate"]


def trained(settings: Sequence[str]) -> tuple[Job, Any, float]:
    """The job, its result, and the seconds that it took."""
    begun = time.perf_counter()
    job = build(parse("[problem]\nconstraint = []", settings))
    result = execute.train(job)
    return job, result, time.perf_counter() - begun


def images(asked: argparse.Namespace) -> Iterator[str]:
    """One line for each division of the rows."""
    folder = next(asked.data.rglob("train-images-idx3-ubyte.gz")).parent
    with TemporaryDirectory() as made:
        source = ["data.name=mnist", f"data.dir={folder}"]
        if asked.rows:
            source = [f"data.path={some_rows(folder, asked.rows, Path(made))}"]
        yield "| rows | seed | default | FedAvg | its rate | difference in points |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for partition in ("iid", "dirichlet"):
            for seed in range(asked.seeds):
                common = [*source, *CNN, f"data.partition={partition}", f"run.seed={seed}"]
                common.append("run.evaluate_every=1000")
                _, ours, _ = trained([*common, f"algorithm.rounds={asked.rounds}"])
                local = ["algorithm.name=fedavg", f"algorithm.local_steps={LOCAL}"]
                local += [f"algorithm.rounds={max(2, asked.rounds // LOCAL)}"]
                theirs = {
                    rate: trained([*common, *local, f"algorithm.rate={rate}"])[1].final
                    for rate in RATES
                }
                best = max(RATES, key=lambda rate: theirs[rate]["test_accuracy"])
                pair = ours.final["test_accuracy"], theirs[best]["test_accuracy"]
                yield (
                    f"| {partition} | {seed} | {pair[0]:.2%} | {pair[1]:.2%} | {best} | "
                    f"{100 * (pair[0] - pair[1]):+.2f} |"
                )


def some_rows(folder: Path, rows: int, made: Path) -> Path:
    """The first training rows of MNIST as an NPZ file."""
    from fedssca import load

    train = load("mnist", directory=folder).train
    path = made / "rows.npz"
    np.savez(path, x=train["x"][:rows], y=train["y"][:rows])
    return path


def banks(asked: argparse.Namespace) -> Iterator[str]:
    """One line for each seed: AUC of the two banks, and of pooled columns."""
    with TemporaryDirectory() as made:
        parts = [bank(asked.data, name, Path(made)) for name in ("guest", "host")]
        names = [[c for c in header if c not in ("id", "y")] for _, header in parts]
        rounds = [f"algorithm.rounds={asked.rounds}", "run.evaluate_every=1000"]
        files = [str(path) for path, _ in parts]
        common = [f"data.path={files}", "data.id=id", "data.label=y", *BOTTOMS, *rounds]
        yield "| seed | two banks | seconds | pooled columns | seconds |"
        yield "| --- | --- | --- | --- | --- |"
        for seed in range(asked.seeds):
            own = [*common, f"run.seed={seed}"]
            apart = trained([*own, "data.split=feature"])
            whole = whole_table(parts, Path(made))
            pooled = [f"data.path={whole}", "data.clients=1", f"model.parties={names}"]
            together = trained([*own, *pooled, "algorithm.batch=50"])
            cells = [f"{auc(job, result):.4f} | {s:.0f}" for job, result, s in (apart, together)]
            yield f"| {seed} | {' | '.join(cells)} |"


def bank(folder: Path, name: str, made: Path) -> tuple[Path, list[str]]:
    """The file of a bank with names of columns that no other bank has."""
    with open(next(folder.rglob(f"default_credit_hetero_{name}.csv")), newline="") as file:
        header, *rows = csv.reader(file)
    named = [c if c in ("id", "y") else f"{name}_{c}" for c in header]
    path = made / f"{name}.csv"
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([named, *rows])
    return path, named


def whole_table(parts: Sequence[tuple[Path, list[str]]], made: Path) -> Path:
    """The columns of both banks in one file, joined by id."""
    tables = []
    for path, _ in parts:
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
        tables.append((header, {row[0]: row for row in rows}))
    (left, ours), (right, theirs) = tables
    place = made / "whole.csv"
    with place.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([*left, *right[1:]])
        writer.writerows([*row, *theirs[key][1:]] for key, row in ours.items() if key in theirs)
    return place


def auc(job: Job, result: Any) -> float:
    """The area under the ROC curve of the returned model on held-out rows."""
    assert job.problem.scores is not None
    test = job.dataset.test
    scores = np.asarray(job.problem.scores(jnp.asarray(result.w), {"x": test["x"]}))
    return float(roc_auc_score(test["y"], scores[:, 1] - scores[:, 0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["images", "banks"])
    parser.add_argument("--data", type=Path, required=True, help="the folder with the files")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of MNIST; 0: all")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    asked.rounds = asked.rounds or {"images": 150, "banks": 500}[asked.what]
    warnings.simplefilter("ignore")
    for line in {"images": images, "banks": banks}[asked.what](asked):
        print(line, flush=True)


if __name__ == "__main__":
    main()
