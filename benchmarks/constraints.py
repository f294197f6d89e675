"""Everything that docs/constraints.md shows, measured by one command.

    python benchmarks/constraints.py all DATA        # every part, then the page
    python benchmarks/constraints.py adult DATA      # one part: see --help
    python benchmarks/constraints.py page            # write the tables into the page again

DATA is a folder with Adult, credit, MNIST and the heart data, in subfolders or not. Every row is
one training through the same code as `fedssca run`, and is kept in docs/evidence/constraints.json
as soon as it is measured. A command that was stopped goes on where it was, if the code is the same
(`--fresh`: it does not).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fedssca

fedssca.keep_compiled_programs()
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "zoo")]

from problems.case import folder_of  # noqa: E402
from tables import Evidence, Row, Table  # noqa: E402

from benchmarks.evidence.pages import render  # noqa: E402
from benchmarks.evidence.record import read_parts  # noqa: E402
from fedssca.run import execute as runner  # noqa: E402
from fedssca.run.build import RUNTIMES, build  # noqa: E402
from fedssca.run.config import parse  # noqa: E402
from fedssca.run.result import Result  # noqa: E402

SEEDS = (0, 1, 2)


def train(*settings: str, base: str = "") -> tuple[Any, Result]:
    job = build(parse(base, settings))
    return job, runner.train(job)


def place(name: str) -> str:
    """The setting that names the folder of a data set."""
    return f"data.dir={folder_of(name) or ''}"


MNIST = """
data.name = "mnist"
problem.objective = "norm"
run.evaluate_every = 50
[[problem.constraint]]
kind = "loss"
limit = 0.13
"""


def mnist() -> Table:
    columns = {"split": "", "B": "", "limit U": "", "seed": ""}
    columns |= {"F": ".4f", "|w|^2": ".1f", "test accuracy": ".2%", "kept": ""}

    def rows() -> Iterator[Row]:
        for split, batch in (("sample", 100), ("feature", 1000), ("sample", 10)):
            for seed in SEEDS:
                yield (split, batch, 0.13, seed), partial(mnist_cells, split, batch, seed)

    return Table(columns, rows())


def mnist_cells(split: str, batch: int, seed: int) -> list[Any]:
    _, result = train(
        place("mnist"),
        f"data.split={split}",
        f"algorithm.batch={batch}",
        "algorithm.rounds=1000",
        f"run.seed={seed}",
        base=MNIST,
    )
    final = result.final
    return [final["train_cost"], final["norm_sq"], final["test_accuracy"], result.feasible]


ADULT = """
data.name = "adult"
model.name = "linear"
model.hidden = 16
problem.objective = "loss"
problem.l2 = 1e-4
algorithm.batch = 100
algorithm.rounds = 500
run.evaluate_every = 20
data.clients = 5
"""


def adult() -> Table:
    columns = {"model": "", "split": "", "limit": "", "gap train": "+.4f", "gap test": "+.4f"}
    columns |= {"kept": "", "test acc.": ".2%"}

    def rows() -> Iterator[Row]:
        for model in ("linear", "mlp"):
            for partition in ("iid", "dirichlet"):
                for limit in (None, 0.05, 0.02):
                    named = (model, partition, limit)
                    yield named, partial(adult_cells, *named)

    return Table(columns, rows())


def adult_cells(model: str, partition: str, limit: float | None) -> list[Any]:
    # An idle limit, so that the gap of the unconstrained model is measured too.
    parity = f'{{kind="parity", column="sex", limit={limit or 0.99}}}'
    _, result = train(
        place("adult"),
        f"model.name={model}",
        f"data.partition={partition}",
        f"problem.constraint=[{parity}]",
        base=ADULT,
    )
    final = result.final
    kept = result.feasible if limit else None
    return [final["train_parity_sex"], final["test_parity_sex"], kept, final["test_accuracy"]]


CANCER = """
data.name = "breast-cancer"
model.name = "linear"
problem.objective = "loss"
problem.l2 = 1e-4
algorithm.rounds = 500
run.evaluate_every = 10
"""
RATES = ("train_fnr", "test_fnr", "train_fpr", "test_fpr")


def cancer() -> Table:
    columns = {"parties": "", "limit on the FNR": "", "seed": "", "FNR train": ".4f"}
    columns |= {"FNR test": ".4f", "FPR train": ".4f", "FPR test": ".4f", "kept": ""}

    def rows() -> Iterator[Row]:
        for parties in ("5 hospitals", "2 parties, vertical"):
            for limit in (None, 0.01):
                for seed in SEEDS:
                    named = (parties, limit, seed)
                    yield named, partial(cancer_cells, *named)

    return Table(columns, rows())


def cancer_cells(parties: str, limit: float | None, seed: int) -> list[Any]:
    split, batch = ("feature", 100) if "vertical" in parties else ("sample", 20)
    watched = f'{{kind="fnr", limit={limit or 0.999}}}, {{kind="fpr", limit=0.999}}'
    _, result = train(
        f"data.split={split}",
        f"data.clients={parties.split()[0]}",
        f"algorithm.batch={batch}",
        f"run.seed={seed}",
        f"problem.constraint=[{watched}]",
        base=CANCER,
    )
    kept = result.feasible if limit else None
    return [*(result.final[key] for key in RATES), kept]


CLIENTS = """
data.name = "digits"
data.clients = 10
data.partition = "classes"
data.classes_per_client = 1
model.hidden = 32
problem.objective = "loss"
problem.l2 = 1e-4
algorithm.batch = 20
algorithm.rounds = 500
"""
AVERAGE = "FedAvg, E = 5, best of 4 rates"
LIMITED = "default, every client <= 0.05"


def clients() -> Table:
    columns = {"labels per client": "", "seed": "", "method": "", "worst client's loss": ".4f"}
    columns |= {"mean loss": ".4f", "kept": "", "test acc.": ".2%"}

    def rows() -> Iterator[Row]:
        for labels in (1, 2):
            for seed in SEEDS:
                for method in (AVERAGE, LIMITED):
                    yield (labels, seed, method), partial(client_cells, labels, seed, method)

    return Table(columns, rows())


def client_cells(labels: int, seed: int, method: str) -> list[Any]:
    shared = (f"data.classes_per_client={labels}", f"run.seed={seed}")
    if method == LIMITED:
        limit = 'problem.constraint=[{kind="client_loss", limit=0.05}]'
        job, result = train(*shared, limit, base=CLIENTS)
    else:
        local = ("algorithm.name=sgd", "algorithm.local_steps=5")
        rates = (f"algorithm.rate={rate}" for rate in (0.03, 0.1, 0.3, 1.0))
        tried = [train(*shared, *local, rate, base=CLIENTS) for rate in rates]
        job, result = min(tried, key=lambda pair: worst_client(*pair))
    kept = result.feasible if method == LIMITED else None
    final = result.final
    return [worst_client(job, result), final["train_cost"], kept, final["test_accuracy"]]


def worst_client(job: Any, result: Result) -> float:
    from fedssca.problem.constraints import cross_entropy

    losses = []
    for i in range(job.clients.count):
        own = job.clients.client(i)
        batch = {name: jax.numpy.asarray(column) for name, column in own.items()}
        w0, w1 = result.params
        h = batch["x"].astype(w1.dtype) * job.dataset.scale @ w1.T
        losses.append(float(cross_entropy(jax.nn.swish(h) @ w0.T, batch).mean()))
    return max(losses)


def timing() -> Table:
    columns = {"M": "", "ms per round": ".2f", "ratio to the unconstrained round": ".2f"}
    return Table(columns, (((count,), partial(time_cells, count)) for count in (0, 1, 3, 10)))


def time_cells(count: int) -> list[Any]:
    spent = seconds_per_round()
    return [1e3 * spent[count], spent[count] / spent[0]]


@cache
def seconds_per_round(turns: int = 41, rounds: int = 20) -> dict[int, float]:
    """Rounds with M constraints; medians of short turns that alternate.

    Other work on the machine slows all of them alike.
    """
    engines = {}
    for count in (0, 1, 3, 10):
        kinds = [f'{{kind="fnr", positive={m}, limit=0.05}}' for m in range(count)]
        settings = [place("mnist"), "algorithm.batch=100", "data.name=mnist"]
        job = build(parse("", [*settings, f"problem.constraint=[{', '.join(kinds)}]"]))
        engine = RUNTIMES["fused"](job.problem, job.clients, job.algorithm, 0)
        engines[count] = engine, engine.advance(job.algorithm.init(job.problem.start), 2)
    seconds: dict[int, list[float]] = {count: [] for count in engines}
    for turn in range(turns):
        for count in (*engines,) if turn % 2 else reversed(engines):
            engine, state = engines[count]
            begun = time.perf_counter()
            engine.advance(state, 2 + rounds).w.block_until_ready()
            seconds[count].append((time.perf_counter() - begun) / rounds)
    return {count: float(np.median(spent)) for count, spent in seconds.items()}


def hard() -> Table:
    """The full-size problems of benchmarks/zoo/hard.py."""
    from hard import COLUMNS, cells_of, runs

    def rows() -> Iterator[Row]:
        for name, run in runs():
            for seed in (*SEEDS, 3):
                yield (name, seed), lambda run=run, seed=seed: cells_of(*run(seed))

    return Table(COLUMNS, rows())


PAPER = {
    100: ("rho={a=0.3, alpha=0.1}", "gamma={a=0.3, alpha=0.1}", "tau=0.05"),
    10: ("rho={a=0.9, alpha=0.1}", "gamma={a=0.5, alpha=0.1}", "tau=0.2"),
}


def picture() -> None:
    """docs/constraints.png: the loss over the rounds, the paper's rule against the default."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    for axis, (batch, steps) in zip(figure.subplots(1, 2, sharey=True), PAPER.items(), strict=True):
        shared = [place("mnist"), f"algorithm.batch={batch}", "run.evaluate_every=20"]
        printed = [f"algorithm.{step}" for step in steps]
        _, plain = train(*shared, *printed, "algorithm.multipliers=exact", base=MNIST)
        _, ours = train(*shared, base=MNIST)
        axis.axhspan(0, 0.13, color="#009E73", alpha=0.12, label="limit kept")
        axis.axhline(0.13, color="black", linewidth=1)
        for result, name, colour, dash in (
            (plain, "exact penalty, printed step sizes", "#D55E00", "--"),
            (ours, "default, nothing set", "#0072B2", "-"),
        ):
            seen = [(each["round"], each["train_cost"]) for each in result.rows]
            norm = result.final["norm_sq"]
            kept = "kept" if result.feasible else "broken"
            label = f"{name}: limit {kept}, |w|² {norm:.0f}"
            axis.plot(*zip(*seen, strict=True), label=label, color=colour, linestyle=dash)
            axis.plot(seen[-1][0], result.final["train_cost"], "o", color=colour)
        axis.set(xlabel="communication round", ylim=(0, 0.6), title=f"ten clients, B = {batch}")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
        print(batch, plain.final["train_cost"], ours.final["train_cost"], flush=True)
    figure.axes[0].set_ylabel("training loss")
    figure.savefig(HERE.parent / "docs" / "constraints.png", dpi=120)


def zoo() -> None:
    """The runs of the zoo, which are kept in runs/zoo, and their counts."""
    for options in (
        ["--method", "default"],
        ["--method", "rivals", "steered", "exact", "--seeds", "1"],
        ["--summary", "--record"],
    ):
        subprocess.run([sys.executable, HERE / "zoo" / "run.py", *options], check=True)


TABLES = {
    "cancer": cancer,
    "clients": clients,
    "adult": adult,
    "mnist": mnist,
    "hard": hard,
    "time": timing,
}
OTHERS = {"picture": picture, "zoo": zoo}


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("part", choices=["all", *TABLES, *OTHERS, "page"])
    args.add_argument("data", nargs="?", help="the folder with the data sets")
    args.add_argument("--fresh", action="store_true", help="measure again what is there")
    said = args.parse_args()
    if said.data:
        os.environ["FEDSSCA_DATA"] = str(Path(said.data).resolve())
    warnings.simplefilter("ignore")
    evidence = Evidence(read_parts()["constraints"])
    for name in [*TABLES, *OTHERS] if said.part == "all" else [said.part]:
        if name in TABLES:
            evidence.measure(name, TABLES[name](), said.fresh)
        elif name in OTHERS:
            OTHERS[name]()
    render()


if __name__ == "__main__":
    main()
