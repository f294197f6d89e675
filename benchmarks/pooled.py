"""Federated training against scikit-learn on pooled rows: test accuracy with the same encoding.

    python benchmarks/pooled.py --data FOLDER [--set KEY=VALUE ...]

The folder holds adult.data, adult.test, UCI_Credit_Card.csv and the four files of the heart data,
in subfolders or not. fedssca trains without a limit and at defaults: five clients with rows, then
three parties with columns (heart: the four hospitals). scikit-learn's LogisticRegression and
MLPClassifier, also at defaults, train on the same encoded training rows of all clients together.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from fedssca.data import Dataset
from fedssca.run import execute
from fedssca.run.build import build
from fedssca.run.config import parse

HEART = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = [
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal", "num",
]  # fmt: skip


def find(folder: Path, name: str) -> Path:
    """The file of this name in the folder or below it."""
    return next(folder.rglob(name))


def sources(folder: Path) -> dict[str, list[str]]:
    """The settings that name each data set."""
    heart = [str(find(folder, f"processed.{name}.data")) for name in HEART]
    return {
        "adult": ["data.name=adult", f"data.dir={find(folder, 'adult.data').parent}"],
        "credit": ["data.name=credit", f"data.dir={find(folder, 'UCI_Credit_Card.csv').parent}"],
        "breast-cancer": ["data.name=breast-cancer"],
        "digits": ["data.name=digits"],
        "heart": [f"data.path={heart}", f"data.columns={COLUMNS}", "data.label=num"],
    }


def federated(settings: Sequence[str]) -> tuple[Dataset, float]:
    """The data set, and the test accuracy of a run with these settings."""
    job = build(parse("", ["problem.objective=loss", "problem.constraint=[]", *settings]))
    return job.dataset, float(execute.train(job).final["test_accuracy"])


def pooled(data: Dataset, model: str, seed: int) -> float:
    """The test accuracy of scikit-learn's classifier on the rows of all clients."""
    rival = (
        LogisticRegression(max_iter=2000)
        if model == "linear"
        else MLPClassifier(random_state=seed, max_iter=500)
    )
    parts = [(part["x"] * np.float32(data.scale), part["y"]) for part in (data.train, data.test)]
    return float(rival.fit(*parts[0]).score(*parts[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with the files")
    parser.add_argument("--only", nargs="*", default=None, help="data sets, e.g. adult heart")
    parser.add_argument("--seeds", type=int, default=3, help="accuracies are means over so many")
    parser.add_argument("--models", nargs="*", default=["linear", "mlp"])
    parser.add_argument("--set", nargs="*", default=[], help="further settings of the runs")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | model | scikit-learn, pooled | rows divided | columns divided |")
    print("| --- | --- | --- | --- | --- |")
    for name, place in sources(asked.data).items():
        for model in asked.models if not asked.only or name in asked.only else ():
            found = [trial(name, [*place, *asked.set], model, seed) for seed in range(asked.seeds)]
            cells = [f"{mean:.2%}" for mean in np.mean(found, axis=0)]
            print(f"| {name} | {model} | {' | '.join(cells)} |", flush=True)


def trial(name: str, place: Sequence[str], model: str, seed: int) -> tuple[float, float, float]:
    """The three accuracies; the seed also draws the test rows, where the data set has none."""
    own = [*place, f"model.name={model}", f"run.seed={seed}"]
    data, by_rows = federated(own if name == "heart" else [*own, "data.clients=5"])
    parties = ["data.split=feature", "data.clients=3"]
    by_columns = np.nan if name == "heart" else federated([*own, *parties])[1]
    return pooled(data, model, seed), by_rows, by_columns


if __name__ == "__main__":
    main()
