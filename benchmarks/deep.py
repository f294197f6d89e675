"""Deep networks at defaults: images against tuned FedAvg, two banks against pooled columns.

    python benchmarks/deep.py images --data FOLDER [--rows 10000] [--rounds 150] [--torch]
    python benchmarks/deep.py banks  --data FOLDER [--rounds 500] [--seeds 1]

`images` trains a convolutional network on MNIST with 10 clients, rows divided at random and by
Dirichlet(0.5): at default step sizes, the same with the limit that every class has at most 3 %
false negatives, and with FedAvg at the best of eight rates; all use the same number of samples.
With --torch the network is a PyTorch module with the same first parameters, without FedAvg.
FedAvg's rate is chosen by its test accuracy, which favours it.

`banks` trains a deep bottom for each of two banks (default_credit_hetero_guest and _host), and the
same network on pooled columns with one client. Both are tuned alike: the weight of |w|^2 is the one
of a small grid with the best AUC on half of the held-out rows, and the AUC of the other half is
printed. The folder holds the files, in subfolders or not.
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
RATES = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0)
RARE = 0.03
"""The largest share of the rows of a class that may be taken for another class."""
WEIGHTS = (3e-5, 1e-4, 3e-4, 1e-3)
"""The weights of |w|^2 among which the banks choose."""
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
        yield "| rows | seed | default | FedAvg | its rate | points | with limits | largest FNR |"
        yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
        for partition in ("iid", "dirichlet"):
            for seed in range(asked.seeds):
                common = [*source, *CNN, f"data.partition={partition}", f"run.seed={seed}"]
                common.append("run.evaluate_every=1000")
                if asked.torch:
                    common.append("model.name=deep:torch_cnn")
                rounds = f"algorithm.rounds={asked.rounds}"
                _, ours, seconds = trained([*common, rounds])
                _, kept, _ = trained([*common, rounds, f"problem.constraint={every_class()}"])
                worst = max(entry["value"] for entry in kept.certificate["limits"])
                limited = f"{kept.final['test_accuracy']:.2%} | {worst:.2%} |"
                default = ours.final["test_accuracy"]
                if asked.torch:
                    yield (
                        f"| {partition} | {seed} | {default:.2%} | - | - | {seconds:.0f} s | "
                        f"{limited}"
                    )
                    continue
                local = ["algorithm.name=fedavg", f"algorithm.local_steps={LOCAL}"]
                local += [f"algorithm.rounds={max(2, asked.rounds // LOCAL)}"]
                theirs = {
                    rate: trained([*common, *local, f"algorithm.rate={rate}"])[1].final
                    for rate in RATES
                }
                best = max(RATES, key=lambda rate: theirs[rate]["test_accuracy"])
                other = theirs[best]["test_accuracy"]
                yield (
                    f"| {partition} | {seed} | {default:.2%} | {other:.2%} | {best} | "
                    f"{100 * (default - other):+.2f} | {limited}"
                )


def every_class() -> str:
    """A limit on the false negatives of every class, as `--set` takes it."""
    limits = [f"{{kind='fnr', limit={RARE}, positive={digit}}}" for digit in range(10)]
    return f"[{', '.join(limits)}]"


def torch_cnn(features: int, outputs: int, seed: int) -> Any:
    """The network CNN as a PyTorch module with the first parameters that JAX draws."""
    import torch

    from fedssca import cnn

    class Lines(torch.nn.Module):
        """Images with the channels of a pixel side by side, as JAX has them."""

        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return z.permute(0, 2, 3, 1).flatten(1)

    def block(inputs: int, outputs: int) -> list[torch.nn.Module]:
        convolution = torch.nn.Conv2d(inputs, outputs, 3, padding="same")
        return [convolution, torch.nn.SiLU(), torch.nn.MaxPool2d(2)]

    side = int(features**0.5)
    module = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, side, side)),
        *(*block(1, 8), *block(8, 16)),
        *(Lines(), torch.nn.Linear((side // 4) ** 2 * 16, 64), torch.nn.SiLU()),
        torch.nn.Linear(64, outputs),
    )
    head, (bottom,) = cnn((side, side), outputs, [8, 16], [64]).init(seed)
    drawn = [leaf for layer in (*bottom, *head) for leaf in layer]
    with torch.no_grad():
        for own, values in zip(module.parameters(), drawn, strict=True):
            own.copy_(torch.tensor(np.asarray(values)))
    return module


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
        yield "| seed | two banks | its l2 | seconds | pooled columns | its l2 | seconds |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        for seed in range(asked.seeds):
            own = [*common, f"run.seed={seed}"]
            apart = [*own, "data.split=feature"]
            whole = whole_table(parts, Path(made))
            pooled = [f"data.path={whole}", "data.clients=1", f"model.parties={names}"]
            cells = [tuned(each) for each in (apart, [*own, *pooled, "algorithm.batch=50"])]
            yield f"| {seed} | {' | '.join(cells)} |"


def tuned(settings: Sequence[str]) -> str:
    """The AUC at the best weight of |w|^2, that weight, and the seconds of one training."""
    found = []
    for weight in WEIGHTS:
        job, result, seconds = trained([*settings, f"problem.l2={weight}"])
        found.append((auc(job, result, 0), auc(job, result, 1), weight, seconds))
    _, other, weight, _ = max(found)
    return f"{other:.4f} | {weight:g} | {min(each[3] for each in found):.0f}"


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


def auc(job: Job, result: Any, half: int) -> float:
    """The area under the ROC curve of the returned model on every second held-out row."""
    assert job.problem.scores is not None
    test = {name: column[half::2] for name, column in job.dataset.test.items()}
    scores = np.asarray(job.problem.scores(jnp.asarray(result.w), {"x": test["x"]}))
    return float(roc_auc_score(test["y"], scores[:, 1] - scores[:, 0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["images", "banks"])
    parser.add_argument("--data", type=Path, required=True, help="the folder with the files")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of MNIST; 0: all")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--torch", action="store_true", help="the network as a PyTorch module")
    asked = parser.parse_args()
    asked.rounds = asked.rounds or {"images": 150, "banks": 500}[asked.what]
    warnings.simplefilter("ignore")
    for line in {"images": images, "banks": banks}[asked.what](asked):
        print(line, flush=True)


if __name__ == "__main__":
    main()
