"""Deep networks at defaults: images against tuned FedAvg, two banks against pooled columns.

    python benchmarks/deep.py all    --data FOLDER
    python benchmarks/deep.py images --data FOLDER [--rows 5000] [--rounds 150] [--seeds 3]
    python benchmarks/deep.py halves --data FOLDER
    python benchmarks/deep.py banks  --data FOLDER [--rounds 500] [--seeds 3]
    python benchmarks/deep.py tables

`images` trains a convolutional network on the first rows of MNIST with 10 clients, rows divided at
random and by Dirichlet(0.5), and judges it on 3,000 rows of MNIST's test set. It trains at default
step sizes, without limits and with the limit that every class has at most 3 % false negatives on
the training rows, and with FedAvg; all draw the same number of samples. FedAvg has the best of six
rates, chosen with seed 0 by its accuracy on held-out rows, which favours it. The same network as a
PyTorch module with the same first parameters is trained, too.

`halves` gives two parties one half of every image each, with convolutions of their own.

`banks` trains a deep bottom for each of two banks (default_credit_hetero_guest and _host), and the
same network on pooled columns with one client, whose rows keep their order, so that both draw the
same rows. Both are tuned alike: the weight of |w|^2 is the one
of a small grid with the best AUC on half of the held-out rows, and the AUC of the other half is
printed. The folder holds the files, in subfolders or not.

Every training is a line in --cells, written as soon as it is done, and is not repeated. At the end,
and by `tables`, the tables are made from these lines, written to docs/evidence/deep.json and
printed.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax.numpy as jnp
import numpy as np
from cells import Cells, evidence, markdown
from sklearn.metrics import roc_auc_score

from benchmarks.evidence.record import read_parts
from fedssca.rounds.perturb import unperturbed
from fedssca.run import execute
from fedssca.run.build import Job, build, engine_of
from fedssca.run.config import parse
from fedssca.system import keep_compiled_programs

LOCAL = 5
RATES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
HELD_OUT = 3000
ROUNDS = 150
"""Rounds with images, unless --rounds says otherwise."""
RARE = 0.03
"""The largest share of the rows of a class that may be taken for another class."""
WEIGHTS = (3e-5, 1e-4, 3e-4, 1e-3)
"""The weights of |w|^2 among which the banks choose."""
CNN = ["model.name=cnn", "model.channels=[8, 16]", "model.hidden=[64]", "algorithm.batch=16"]
HALVES = ["data.split=feature", "data.clients=2", "model.name=cnn", "model.channels=[8, 16]"]
HALVES += ["model.bottom=[32]", "model.hidden=[32]", "algorithm.batch=160"]
BOTTOMS = ["model.bottom=[16, 8]", "model.hidden=[16]", "model.join=concatenate"]
RUNTIMES = {"fused": "one program", "local": "messages, one by one"}
WARM, TIMED = 20, 100
"""Rounds before the processor time of rounds is measured, and those that are measured."""
DIVISIONS = ("iid", "dirichlet")


def trained(settings: Sequence[str]) -> tuple[Job, Any]:
    """The job and its result."""
    job = build(parse("[problem]\nconstraint = []", settings))
    return job, execute.train(job)


def images(asked: argparse.Namespace, cells: Cells) -> None:
    """Train all cells of the table of images, cheap ones first."""
    with TemporaryDirectory() as made:
        source = [f"data.path={some_rows(asked.data, asked.rows, Path(made))}", *CNN]
        source.append("run.evaluate_every=100")

        def cell(rows: str, seed: int, how: str, limited: bool = False, rate: float = 0) -> Any:
            settings = [*source, f"data.partition={rows}", f"run.seed={seed}"]
            rounds = asked.rounds
            if how == "fedavg":
                settings += ["algorithm.name=fedavg", f"algorithm.local_steps={LOCAL}"]
                settings.append(f"algorithm.rate={rate}")
                rounds = max(2, rounds // LOCAL)
            if how == "torch":
                settings = [each for each in settings if "model." not in each]
                settings.append("model.name=deep:torch_cnn")
            if limited:
                settings.append(f"problem.constraint={every_class()}")
            settings.append(f"algorithm.rounds={rounds}")
            key = image_key(asked, rows, seed, how, limited, rate)
            return cells.compute(key, partial(judged, settings))

        for rows in DIVISIONS:
            cell(rows, 0, "jax")
            for rate in RATES:
                cell(rows, 0, "fedavg", rate=rate)
        for seed in range(1, asked.seeds):
            for rows in DIVISIONS:
                cell(rows, seed, "jax")
                cell(rows, seed, "fedavg", rate=best_rate(asked, cells, rows))
        for how, limited in (("torch", False), ("jax", True), ("torch", True)):
            for seed in range(asked.seeds):
                for rows in DIVISIONS:
                    cell(rows, seed, how, limited)


def image_key(
    asked: argparse.Namespace, rows: str, seed: int, how: str, limited: bool, rate: float = 0
) -> dict[str, Any]:
    size = {"rows": asked.rows, "rounds": asked.rounds}
    own = {"how": how, "limited": limited, "rate": rate}
    return {"part": "images", "divided": rows, "seed": seed, **own, **size}


def best_rate(asked: argparse.Namespace, cells: Cells, rows: str) -> float:
    """The rate of FedAvg with the best accuracy on held-out rows, with seed 0."""
    known = {rate: cells.get(image_key(asked, rows, 0, "fedavg", False, rate)) for rate in RATES}
    return max(RATES, key=lambda rate: (known[rate] or {}).get("accuracy", 0.0))


def judged(settings: Sequence[str]) -> dict[str, Any]:
    """Train, and tell accuracies and the largest shares of false negatives."""
    _, result = trained(settings)
    limits = result.certificate["limits"]
    told = {
        "accuracy": round(float(result.final["test_accuracy"]), 5),
        "train_accuracy": round(float(result.final["train_accuracy"]), 5),
    }
    if not limits:
        return told
    return told | {
        "kept": bool(result.feasible),
        "largest_fnr": round(max(entry["value"] for entry in limits), 5),
        "before_last_steps": round(max(result.rows[-1]["constraints"]), 5),
        "passes": result.certificate["returned"]["search_passes"],
    }


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
    """A folder with the first training rows of MNIST (0: all), and the first held-out rows."""
    from fedssca import load

    data = load("mnist", directory=next(folder.rglob("train-images-idx3-ubyte.gz")).parent)
    for part, end, count in ((data.train, "", rows or None), (data.test, "_test", HELD_OUT)):
        for name in ("x", "y"):
            np.save(made / f"{name}{end}.npy", np.asarray(part[name])[:count])
    return made


def halves(asked: argparse.Namespace, cells: Cells) -> None:
    """Train two parties with one half of every image each."""
    with TemporaryDirectory() as made:
        source = [f"data.path={some_rows(asked.data, asked.rows, Path(made))}", *HALVES]
        source += [f"algorithm.rounds={asked.rounds}", "run.evaluate_every=100", "run.seed=0"]
        key = {"part": "halves", "seed": 0, "rows": asked.rows, "rounds": asked.rounds}
        cells.compute(key, partial(judged, source))


def banks(asked: argparse.Namespace, cells: Cells) -> None:
    """Train the two banks, and the same network on pooled columns, for every weight of |w|^2."""
    with TemporaryDirectory() as made:
        parts = [bank(asked.data, name, Path(made)) for name in ("guest", "host")]
        names = [[c for c in header if c not in ("id", "y")] for _, header in parts]
        rounds = [f"algorithm.rounds={asked.rounds}", "run.evaluate_every=1000"]
        files = [str(path) for path, _ in parts]
        common = [f"data.path={files}", "data.id=id", "data.label=y", *BOTTOMS, *rounds]
        whole = whole_table(parts, Path(made))
        pooled = [f"data.path={whole}", "data.clients=1", f"model.parties={names}"]
        pooled += ["algorithm.batch=50", "data.partition=contiguous"]
        ways = {"banks": ["data.split=feature"], "pooled": pooled}
        for runtime in RUNTIMES:
            for way, settings in ways.items():
                own = [*common, *settings, f"run.runtime={runtime}"]
                cells.compute(pace_key(way, runtime), partial(pace, own))
        for seed in range(asked.seeds):
            for weight in WEIGHTS:
                for way, settings in ways.items():
                    own = [*common, *settings, f"run.seed={seed}", f"problem.l2={weight}"]
                    key = bank_key(asked, seed, way, weight)
                    cells.compute(key, partial(ranked, own))


def bank_key(asked: argparse.Namespace, seed: int, way: str, weight: float) -> dict[str, Any]:
    own = {"way": way, "l2": weight, "rounds": asked.rounds}
    return {"part": "banks", "seed": seed, **own}


def pace_key(way: str, runtime: str) -> dict[str, Any]:
    return {"part": "pace", "way": way, "runtime": runtime}


def pace(settings: Sequence[str]) -> dict[str, Any]:
    """The processor time of a round, after rounds in which programs are compiled."""
    job = build(parse("[problem]\nconstraint = []", settings))
    engine = engine_of(job.config)(job.problem, job.clients, job.algorithm, 0, unperturbed)
    state = engine.advance(job.algorithm.init(job.problem.start), WARM)
    float(state.w[0])
    begun = time.process_time()
    float(engine.advance(state, WARM + TIMED).w[0])
    return {"milliseconds": round(1000 * (time.process_time() - begun) / TIMED, 3)}


def ranked(settings: Sequence[str]) -> dict[str, Any]:
    """Train, and tell the AUC on both halves of the held-out rows, and the step size."""
    job, result = trained(settings)
    chosen, other = (auc(job, result, half) for half in (0, 1))
    tau = job.config.algorithm.tau
    return {"chosen_by": round(chosen, 5), "auc": round(other, 5), "tau": tau, "w": digest(result)}


def digest(result: Any) -> str:
    """The first digits of the SHA-256 of the parameters: equal only if all bits are."""
    return hashlib.sha256(np.asarray(result.w).tobytes()).hexdigest()[:16]


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


def image_table(asked: argparse.Namespace, cells: Cells) -> Iterator[dict[str, Any]]:
    """One line for each division of the rows and each seed, as far as there are cells."""

    def shown(values: dict[str, Any] | None, name: str = "accuracy") -> str:
        return f"{values[name]:.2%}" if values else "-"

    for rows in DIVISIONS:
        for seed in range(asked.seeds):
            key = partial(image_key, asked, rows, seed)
            rate = best_rate(asked, cells, rows)
            ours, theirs = cells.get(key("jax", False)), cells.get(key("fedavg", False, rate))
            if ours is None:
                continue
            kept, torch = cells.get(key("jax", True)), cells.get(key("torch", False))
            torch_kept = cells.get(key("torch", True))
            points = 100 * (ours["accuracy"] - theirs["accuracy"]) if theirs else None
            yield {
                "rows": rows,
                "seed": seed,
                "default": shown(ours),
                "FedAvg": shown(theirs),
                "its rate": rate,
                "points": "-" if points is None else f"{points:+.2f}",
                "with limits": shown(kept),
                "largest FNR": shown(kept, "largest_fnr"),
                "torch": shown(torch),
                "torch with limits": shown(torch_kept),
                "its largest FNR": shown(torch_kept, "largest_fnr"),
            }


def bank_table(asked: argparse.Namespace, cells: Cells) -> Iterator[dict[str, Any]]:
    """One line for each seed for which both were tuned."""
    for seed in range(asked.seeds):
        line: dict[str, Any] = {"seed": seed}
        bits = []
        for way, title in (("banks", "two banks"), ("pooled", "pooled columns")):
            found = {l2: cells.get(bank_key(asked, seed, way, l2)) for l2 in WEIGHTS}
            done = {l2: values for l2, values in found.items() if values}
            if len(done) < len(WEIGHTS):
                return
            best = max(done, key=lambda l2: done[l2]["chosen_by"])
            bits.append([values["w"] for values in done.values()])
            line |= {title: f"{done[best]['auc']:.4f}", f"l2 of {title}": f"{best:g}"}
        yield line | {"same bits": f"{np.sum(np.equal(*bits))} of {len(WEIGHTS)}"}


def pace_table(cells: Cells) -> Iterator[dict[str, Any]]:
    """One line for each runtime: the processor time of a round of both, and their ratio."""
    for runtime, title in RUNTIMES.items():
        both = [cells.get(pace_key(way, runtime)) for way in ("banks", "pooled")]
        apart, whole = (each["milliseconds"] if each else 0.0 for each in both)
        if apart and whole:
            line = {"runtime": title, "two banks": f"{apart:.2f} ms"}
            yield line | {"pooled columns": f"{whole:.2f} ms", "ratio": f"{apart / whole:.2f}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["all", "images", "halves", "banks", "tables"])
    parser.add_argument("--data", type=Path, help="the folder with the files")
    parser.add_argument("--rows", type=int, default=5000, help="rows of MNIST; 0: all")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--bank-rounds", type=int, default=500, help="those of `tables`")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cells", type=Path, default=Path("runs/deep.jsonl"))
    asked = parser.parse_args()
    part = read_parts()["deep"]
    cells = Cells(asked.cells, part.digest())
    if asked.what != "tables":
        if asked.data is None:
            parser.error("--data: give the folder with the files")
        warnings.simplefilter("ignore")
        keep_compiled_programs()
        ways = {"images": images, "halves": halves, "banks": banks}
        for what in ways if asked.what == "all" else [asked.what]:
            way = argparse.Namespace(**vars(asked))
            way.rounds = asked.rounds or (asked.bank_rounds if what == "banks" else ROUNDS)
            ways[what](way, cells)
    asked.rounds = asked.rounds or ROUNDS
    half = cells.get({"part": "halves", "seed": 0, "rows": asked.rows, "rounds": asked.rounds})
    tables = {
        "images": list(image_table(asked, cells)),
        "halves": [{"accuracy": f"{half['accuracy']:.2%}"}] if half else [],
    }
    asked.rounds = asked.bank_rounds
    tables |= {"banks": list(bank_table(asked, cells)), "rounds": list(pace_table(cells))}
    shown = {name: table for name, table in tables.items() if table}
    evidence(part, cells, shown)
    print("\n\n".join(markdown(table) for table in shown.values()))


if __name__ == "__main__":
    sys.modules.setdefault("deep", sys.modules["__main__"])
    main()
