"""Regression against scikit-learn on pooled rows, and against SLSQP with a limited group.

    python benchmarks/regression.py --data FOLDER [--seeds N] [--set KEY=VALUE ...]

The folder holds adult.data and UCI_Credit_Card.csv, in subfolders or not. Targets are the
progression of diabetes (442 rows), the hours per week of Adult (32,561 rows) and the credit limit
of the credit table (30,000 rows). fedssca trains at defaults, with five clients with rows and with
three parties with columns; Ridge and MLPRegressor (with as many hidden units and early stopping)
train on the same encoded rows of all clients together. "limited" runs have the linear model and a
limit on the RMSE of the group with the largest one, half way between its RMSE without a limit and
the smallest that any linear model has. SLSQP solves the same problem on pooled rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor

from fedssca.data import Dataset
from fedssca.data.named import read_credit
from fedssca.data.tables import Reading, read_csv, write_csv
from fedssca.run import execute
from fedssca.run.build import build
from fedssca.run.config import parse

ADULT = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
         "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
         "hours-per-week", "native-country", "income"]  # fmt: skip
SPLITS = {
    "rows": ["data.split=sample", "data.clients=5"],
    "columns": ["data.split=feature", "data.clients=3"],
}


def sources(folder: Path, made: Path) -> dict[str, list[str]]:
    """The settings of each table; `made` is a folder for tables with the names of their columns."""
    adult = read_csv(next(folder.rglob("adult.data")), Reading(columns=tuple(ADULT)))
    write_csv(made / "adult.csv", adult)
    write_csv(made / "credit.csv", read_credit(next(folder.rglob("UCI_Credit_Card.csv"))))
    return {
        "diabetes": ["data.name=diabetes"],
        "adult hours": [f"data.path={made / 'adult.csv'}", "data.label=hours-per-week"],
        "credit limit": [f"data.path={made / 'credit.csv'}", "data.label=LIMIT_BAL"],
    }


def pooled(data: Dataset, model: str, hidden: int, seed: int) -> float:
    """The test RMSE of scikit-learn's regressor on the rows of all clients."""
    x, y = data.train["x"], data.train["y"]
    stop = len(y) > 1000
    rival = (
        Ridge()
        if model == "linear"
        else MLPRegressor(
            hidden_layer_sizes=(hidden,), random_state=seed, early_stopping=stop, max_iter=500
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = rival.fit(x, y).predict(data.test["x"])
    assert data.target is not None
    return float(data.target.scale * np.sqrt(np.mean((found - data.test["y"]) ** 2)))


def trained(settings: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The job and the final row of a run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job = build(parse("", ["problem.task=regression", "problem.objective=loss", *settings]))
        result = execute.train(job)
    return job, result.final | {"kept": result.feasible, "limits": result.certificate["limits"]}


class Oracle:
    """The linear problem on pooled rows: mean squared error / 2 + l2 |w|^2, one group limited."""

    def __init__(self, data: Dataset, column: str, l2: float) -> None:
        self.x = np.c_[np.ones(len(data.train["x"])), data.train["x"].astype(float)]
        self.y, self.l2 = data.train["y"].astype(float), l2
        assert data.target is not None
        self.unit, groups = data.target.scale, data.train[column]
        free = self.solve(None, None)
        errors = {g: self.rmse(free, groups == g) for g in np.unique(groups)}
        self.group = max(errors, key=lambda g: errors[g])
        self.own = groups == self.group
        least = np.linalg.lstsq(self.x[self.own], self.y[self.own], rcond=None)[0]
        self.limit = float(f"{(errors[self.group] + self.rmse(least, self.own)) / 2:.5g}")

    def rmse(self, w: np.ndarray, own: np.ndarray) -> float:
        return float(self.unit * np.sqrt(np.mean((self.x[own] @ w - self.y[own]) ** 2)))

    def objective(self, w: np.ndarray) -> float:
        return float(np.mean((self.x @ w - self.y) ** 2) / 2 + self.l2 * w @ w)

    def solve(self, limit: float | None, own: np.ndarray | None) -> np.ndarray:
        """The minimiser; SLSQP if a group is limited, and the normal equations if none is."""
        gram = self.x.T @ self.x / len(self.y) + 2 * self.l2 * np.eye(self.x.shape[1])
        right = self.x.T @ self.y / len(self.y)
        free: np.ndarray = np.linalg.solve(gram, right)
        if limit is None or own is None:
            return free
        x, y = self.x[own], self.y[own]
        most = (limit / self.unit) ** 2

        def slope(w: np.ndarray) -> np.ndarray:
            return gram @ w - right

        room = {
            "type": "ineq",
            "fun": lambda w: most - np.mean((x @ w - y) ** 2),
            "jac": lambda w: -2 * x.T @ (x @ w - y) / len(y),
        }
        best = minimize(
            self.objective, free, jac=slope, constraints=room, method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-10},
        )  # fmt: skip
        assert most - np.mean((x @ best.x - y) ** 2) > -1e-6, best.message
        return np.asarray(best.x)


def limited(settings: Sequence[str], further: Sequence[str]) -> str:
    """A line about the linear model with a limited group, in both splits."""
    column = "sex"
    job = build(parse("", ["problem.task=regression", "problem.objective=loss", "model.name=linear",
                           *settings, f"data.keep=['{column}']", *further]))  # fmt: skip
    oracle = Oracle(job.dataset, column, float(job.config.problem.l2 or 0.0))
    best = oracle.objective(oracle.solve(oracle.limit, oracle.own))
    kinds = job.dataset.kinds.get(column)
    name = kinds[int(oracle.group)] if kinds else f"{oracle.group:g}"
    cells = []
    for split in SPLITS.values():
        constraint = f"problem.constraint=[{{kind='rmse',limit={oracle.limit},column='{column}'}}]"
        _, final = trained(["model.name=linear", *settings, *split, constraint, *further])
        found = next(each for each in final["limits"] if each["title"].endswith(f"= {name}"))
        share = 100 * (final["objective"] / best - 1)
        kept = "kept" if final["kept"] else "BROKEN"
        cells.append(f"{found['value']:.5g} {kept}, objective {share:+.2f} %")
    return f"{column} = {name} | {oracle.limit:g} | {' | '.join(cells)}"


def main() -> None:
    """Print one table of RMSE without limits, and one with a limited group."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    with TemporaryDirectory() as made:
        tables = sources(given.data, Path(made))
        tables = {name: own for name, own in tables.items() if given.only in name}
        print("| target | model | scikit-learn | rows divided | columns divided |")
        print("|---|---|---|---|---|")
        for name, own in tables.items():
            for model in ("linear", "mlp"):
                rival, cells = [], {split: [] for split in SPLITS}
                for seed in range(given.seeds):
                    for split, settings in SPLITS.items():
                        job, final = trained(
                            [f"model.name={model}", f"run.seed={seed}", *own, *settings,
                             "problem.constraint=[]", *given.settings]
                        )  # fmt: skip
                        cells[split].append(final["test_rmse"])
                    rival.append(pooled(job.dataset, model, job.config.model.hidden, seed))
                them = float(np.mean(rival))
                shown = [
                    f"{np.mean(c):.5g} ({100 * (np.mean(c) / them - 1):+.1f} %)"
                    for c in cells.values()
                ]
                print(f"| {name} | {model} | {them:.5g} | {' | '.join(shown)} |", flush=True)
        print("\n| target | group | limit | rows divided | columns divided |")
        print("|---|---|---|---|---|")
        for name, own in tables.items():
            print(f"| {name} | {limited(own, given.settings)} |", flush=True)


if __name__ == "__main__":
    main()
