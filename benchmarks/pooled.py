"""Federated training against scikit-learn on pooled rows: test accuracy with the same encoding.

    python benchmarks/pooled.py --data FOLDER [--set KEY=VALUE ...]

The folder holds adult.data, adult.test, UCI_Credit_Card.csv and the four files of the heart data,
in subfolders or not. fedssca trains without a limit and at defaults: five clients with rows (heart:
the four hospitals), then three parties with columns. scikit-learn's LogisticRegression and
MLPClassifier (with as many hidden units) train on the same encoded training rows of all clients
together. The last column is the larger shortfall of ours in percentage points, and the last line
of the output says whether any is above one point.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

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


def sources(folder: Path, made: Path) -> dict[str, tuple[list[str], list[str]]]:
    """The settings of each data set: for clients with rows, and for parties with columns.

    `made` is a folder for one file with the rows of the four hospitals, whose columns are divided.
    """
    heart = [find(folder, f"processed.{name}.data") for name in HEART]
    together = made / "heart.data"
    together.write_text("".join(path.read_text() for path in heart))
    columns = [f"data.columns={COLUMNS}", "data.label=num > 0"]
    five, three = ["data.clients=5"], ["data.split=feature", "data.clients=3"]
    named = {
        "adult": ["data.name=adult", f"data.dir={find(folder, 'adult.data').parent}"],
        "credit": ["data.name=credit", f"data.dir={find(folder, 'UCI_Credit_Card.csv').parent}"],
        "breast-cancer": ["data.name=breast-cancer"],
        "digits": ["data.name=digits"],
    }
    return {name: ([*own, *five], [*own, *three]) for name, own in named.items()} | {
        "heart": (
            [f"data.path={[str(path) for path in heart]}", *columns],
            [f"data.path={together}", *columns, *three],
        )
    }


def shortfall(settings: Sequence[str], model: str, seed: int) -> tuple[float, float]:
    """The test accuracies of scikit-learn and of a federated run, for the same rows."""
    own = [f"model.name={model}", f"run.seed={seed}"]
    job = build(parse("", ["problem.objective=loss", "problem.constraint=[]", *own, *settings]))
    ours = float(execute.train(job).final["test_accuracy"])
    return pooled(job.dataset, model, job.config.model.hidden, seed), ours


def pooled(data: Dataset, model: str, hidden: int, seed: int) -> float:
    """The test accuracy of scikit-learn's classifier on the rows of all clients."""
    rival = (
        LogisticRegression(max_iter=2000)
        if model == "linear"
        else MLPClassifier((hidden,), random_state=seed)
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
    print("| data | model | pooled | rows divided | pooled | columns divided | shortfall |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    worst = -np.inf
    with TemporaryDirectory() as made:
        for name, ways in sources(asked.data, Path(made)).items():
            for model in asked.models if not asked.only or name in asked.only else ():
                means = [
                    np.mean(
                        [shortfall([*way, *asked.set], model, s) for s in range(asked.seeds)], 0
                    )
                    for way in ways
                ]
                behind = max(float(rival - ours) for rival, ours in means)
                worst = max(worst, behind)
                cells = [f"{value:.2%}" for pair in means for value in pair]
                print(
                    f"| {name} | {model} | {' | '.join(cells)} | {100 * behind:.2f} |", flush=True
                )
    verdict = "all within" if worst <= 0.01 else "NOT all within"
    print(f"\n{verdict} one point of scikit-learn; the largest shortfall is {100 * worst:.2f}")


if __name__ == "__main__":
    main()
