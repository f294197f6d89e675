"""Fed-Heart beside FLamby's published means: the worst hospital, with and without limits.

    python benchmarks/fed_heart.py [--data FOLDER] [--seeds N] [--set KEY=VALUE ...] [--json FILE]

The rows are FLamby's (data.name = "heart-flamby": 486 for training, 254 for testing) and the model
is logistic. Features are those of FLamby, which each hospital standardises by itself ("each"), or
the same columns, standardised with the mean and deviation of all training rows ("all"), as fedssca
does with tables. "limit" bounds the loss of every hospital half way between the largest loss of a
hospital without limits and the largest with `worst_client`, both of training rows of seed 0: test
rows choose nothing. "FLamby's pooled" is the accuracy of all test rows, standardised with all
training rows, as FLamby's tables have it whatever the model was trained on.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedssca.data import Dataset, load
from fedssca.data.heart import HOSPITALS
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import train
from fedssca.run.model import model_from
from fedssca.run.versions import versions
from fedssca.system import keep_compiled_programs

NUMBERS = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
HEADS = (
    "features",
    "training",
    *HOSPITALS,
    "worst of the means",
    "mean of the worst",
    "pooled",
    "FLamby's pooled",
    "largest training loss",
    "limits kept",
)
CODES = {"cp": (2, 3, 4), "restecg": (1, 2)}
LIMIT = """
[[problem.constraint]]
kind = "loss"
per_client = true
limit = {limit}
"""


def datasets(folder: Path | None) -> dict[str, Dataset]:
    """FLamby's rows: standardised by each hospital, and with all training rows."""
    made = load("heart-flamby", directory=folder, keep=[*NUMBERS, *CODES])
    raw = [_features(part) for part in (made.train, made.test)]
    mean, deviation = raw[0].mean(axis=0), raw[0].std(axis=0, ddof=1)
    own, held = (((x - mean) / deviation).astype(np.float32) for x in raw)
    everyone = dataclasses.replace(
        made,
        train={"x": own, "y": made.train["y"]},
        test={"x": held, "y": made.test["y"]},
    )
    kept = {"train": made.train, "test": made.test}
    plain = {part: {c: v[c] for c in ("x", "y")} for part, v in kept.items()}
    return {"each": dataclasses.replace(made, **plain), "all": everyone}


def _features(columns: dict[str, np.ndarray]) -> np.ndarray:
    codes = [columns[name] == code for name, known in CODES.items() for code in known]
    return np.stack([*(columns[name] for name in NUMBERS), *codes], axis=1).astype(float)


class Fit(NamedTuple):
    """A trained model: losses of hospitals in training, accuracies of test rows."""

    losses: list[float]
    hospitals: list[float]
    pooled: float
    flamby: float
    kept: bool


def fitted(data: Dataset, pooled: Dataset, settings: Sequence[str], text: str = "") -> Fit:
    """Train with these settings, and count the test rows that are predicted right."""
    job = build(parse(text, [*settings, "data.name=heart-flamby", "model.name=linear"]), data)
    result = train(job)
    model, owners = model_from(job, result.w, {}), data.test_owners
    own, flamby = (
        model.scores(part.test["x"]).argmax(axis=1) == part.test["y"] for part in (data, pooled)
    )
    return Fit(
        [each["train"]["cost"] for each in result.clients],
        [float(own[owners == i].mean()) for i in range(len(HOSPITALS))],
        float(own.mean()),
        float(flamby.mean()),
        result.feasible,
    )


def show(features: str, name: str, fits: Sequence[Fit]) -> dict[str, Any]:
    """Print the means over seeds as a line of a table; returns that line by its headings."""
    hospitals = np.mean([fit.hospitals for fit in fits], axis=0)
    worst = np.mean([min(fit.hospitals) for fit in fits])
    rest = [np.mean([getattr(fit, column) for fit in fits]) for column in ("pooled", "flamby")]
    largest = np.mean([max(fit.losses) for fit in fits])
    means = [float(value) for value in (*hospitals, min(hospitals), worst, *rest, largest)]
    kept = f"{sum(fit.kept for fit in fits)} of {len(fits)}"
    cells = [f"{value:.3f}" for value in means]
    print(" | ".join(["", features, name, *cells, kept, ""]).strip(), flush=True)
    return dict(zip(HEADS, [features, name, *means, kept], strict=True))


def main() -> None:
    """Train everything and print one line for each kind of training."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder with processed.*.data")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", type=Path, help="a file for the table, with date and versions")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    keep_compiled_programs()
    made = datasets(args.data)
    lines: list[dict[str, Any]] = []
    print(" | ".join(["", *HEADS, ""]).strip(), "|---" * len(HEADS) + "|", sep="\n")
    for features, data in made.items():

        def runs(*settings: str, text: str = "", data: Dataset = data) -> list[Fit]:
            each = [[f"run.seed={seed}", *settings, *args.set] for seed in range(args.seeds)]
            return [fitted(data, made["all"], own, text) for own in each]

        plain, worst = runs(), runs("problem.objective=worst_client")
        limit = (max(plain[0].losses) + max(worst[0].losses)) / 2
        limited = runs(text=LIMIT.format(limit=limit))
        lines.append(show(features, "no limits", plain))
        lines.append(show(features, f"loss of every hospital <= {limit:.3f}", limited))
        lines.append(show(features, "worst_client", worst))
    if args.json is not None:
        told = {
            "command": "python benchmarks/fed_heart.py",
            "date": datetime.date.today().isoformat(),
            "versions": versions(),
            "seeds": list(range(args.seeds)),
            "tables": {"accuracy of test rows, means over seeds": lines},
        }
        args.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
