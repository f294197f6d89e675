"""Accuracy against epsilon on MNIST: what privacy costs, without and with a limit on the loss.

    python benchmarks/privacy_accuracy.py --dir DATA --out FOLDER

Ten clients of 6,000 images, batches of 100, 300 rounds (5 passes), a network of 32 hidden units,
step sizes from calibration (its six probes are clipped, noised and counted too). Everything is
kept equal but epsilon and who sees what; delta is 1e-5. Batches are Poisson samples. The compiled
simulator adds, once to the sum, as much noise as the clients would together, in place of masks and
messages. Accuracy and loss are evaluated exactly, which epsilon does not cover here. Writes
privacy-accuracy.{png,csv}; runs that the csv holds already are not done again.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedssca.rounds.fused import Fused
from fedssca.run.build import build, load_dataset
from fedssca.run.config import Config, parse
from fedssca.run.curves import COLOURS
from fedssca.run.execute import train

BASE = """
[data]
name = "mnist"
clients = 10
[model]
hidden = 32
[algorithm]
batch = 100
rounds = 300
[privacy]
clip = 1.0
value_clip = 3.0
evaluation = "exact"
[run]
evaluate_every = 300
"""
LIMIT = 0.45
CONSTRAINED = ['problem.objective="norm"', f'problem.constraint=[{{kind="loss",limit={LIMIT}}}]']
SERIES: dict[str, list[str]] = {
    "server sees sums": ["privacy.secure_sum=true"],
    "server sees every client": [],
    f"sums, loss at most {LIMIT}": ["privacy.secure_sum=true", *CONSTRAINED],
}
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 0.0)
"""0: clipped, but without noise."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="", help="folder with MNIST; default: the cache folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    base = parse(BASE, [f"data.dir={given.dir}"])
    table, dataset = given.out / "privacy-accuracy.csv", load_dataset(base)
    rows = list(csv.DictReader(table.open())) if table.exists() else []
    done = {(row["series"], row["target"], row["seed"]) for row in rows}
    for name, settings in SERIES.items():
        for epsilon in EPSILONS:
            for seed in range(given.seeds):
                if (name, f"{epsilon:g}", str(seed)) in done:
                    continue
                more = [f"data.dir={given.dir}", f"privacy.epsilon={epsilon}", f"run.seed={seed}"]
                rows.append(one(name, parse(BASE, [*settings, *more]), dataset))
                write(table, rows)
                print(rows[-1], flush=True)
    draw(given.out / "privacy-accuracy.png", rows)


def one(name: str, config: Config, dataset: Any) -> dict[str, Any]:
    """One run, in short."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job = build(config, dataset, engine=Fused)
        last = train(job, runtime=Fused)
    noise = job.noise
    return {
        "series": name,
        "target": f"{config.privacy.epsilon:g}",
        "seed": config.run.seed,
        "epsilon": round(last.privacy["epsilon"], 3) if noise else "inf",
        "noise_multiplier": round(noise.ledger.sigma, 3) if noise else 0,
        "train_cost": round(last.final["train_cost"], 4),
        "test_accuracy": round(last.final["test_accuracy"], 4),
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Accuracy and training cost over epsilon; "inf" stands at the right, behind a gap."""
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    marks = [each for each in EPSILONS if each]
    end = 2.6 * marks[-1]
    for number, name in enumerate(SERIES):
        own = [row for row in rows if row["series"] == name]
        look = {"color": COLOURS[number], "marker": "os^"[number], "label": name}
        for axis, key, scale in ((left, "test_accuracy", 100.0), (right, "train_cost", 1.0)):
            means = {}
            for at in {row["epsilon"] for row in own}:
                here = [float(row[key]) for row in own if row["epsilon"] == at]
                means[end if at == "inf" else float(at)] = scale * sum(here) / len(here)
            noisy = sorted(x for x in means if x != end)
            axis.plot(noisy, [means[x] for x in noisy], "-", lw=1.8, ms=5.5, **look)
            axis.plot([end], [means[end]], ls="none", ms=5.5, **look | {"label": None})
            axis.plot([noisy[-1], end], [means[noisy[-1]], means[end]], ":", color=look["color"])
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xticks([*marks, end], [f"{each:g}" for each in marks] + ["no noise"])
        axis.minorticks_off()
        axis.set_xlabel("ε of the whole run (δ = 10⁻⁵)")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("test accuracy, %")
    right.set_ylabel("training loss")
    right.axhline(LIMIT, color=COLOURS[2], ls="--", lw=1.2)
    right.annotate(
        "limit of the constrained run",
        (marks[-1], LIMIT),
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
        color=COLOURS[2],
        fontsize=9,
    )
    left.legend(frameon=False, loc="lower right")
    figure.suptitle("MNIST, ten clients, 300 rounds: what privacy for every image costs")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
