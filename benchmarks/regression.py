"""Regression against scikit-learn on pooled rows, and against SLSQP with a limited group.

    python benchmarks/regression.py --data FOLDER [--seeds 3] [--only diabetes]
                                    [--set KEY=VALUE ...]
    python benchmarks/regression.py --tables

The folder holds adult.data and UCI_Credit_Card.csv, in subfolders or not. Targets are the
progression of diabetes (442 rows), the hours per week of Adult (32,561 rows) and the credit limit
of the credit table (30,000 rows). fedssca trains at defaults, with five clients with rows and with
three parties with columns; Ridge and MLPRegressor (with as many hidden units and early stopping)
train on the same encoded rows of all clients together. "limited" runs have the linear model and a
limit on the RMSE of the group with the largest one, half way between its RMSE without a limit and
the smallest that any linear model has. SLSQP solves the same problem on pooled rows.

Every training is a line in --cells, written as soon as it is done, and is not repeated. With
--tables nothing is trained: the tables go to docs/evidence/regression.json and are printed.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from cells import Cells, evidence, markdown
from scipy.optimize import minimize
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor

from benchmarks.evidence.record import read_parts
from fedssca.data import Dataset
from fedssca.data.named import read_credit
from fedssca.data.tables import Reading, read_csv, write_csv
from fedssca.run import execute
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.system import keep_compiled_programs

ADULT = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
         "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
         "hours-per-week", "native-country", "income"]  # fmt: skip
UNUSED = ["algorithm.rho={a=0.9,alpha=0.3}", "algorithm.gamma={a=0.9,alpha=0.6}"]
UNUSED.append("algorithm.tau=1.0")
"""Step sizes of a job that is not trained, so that it is not calibrated either."""
TARGETS = ("diabetes", "adult hours", "credit limit")
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


def limited(settings: Sequence[str], splits: Sequence[str]) -> dict[str, Any]:
    """The linear model with a limited group, in the settings of one split, against SLSQP."""
    column, linear = "sex", ["model.name=linear"]
    rows = ["problem.task=regression", "problem.objective=loss", *linear, *settings]
    job = build(parse("", [*rows, f"data.keep=['{column}']", *UNUSED]))
    oracle = Oracle(job.dataset, column, float(job.config.problem.l2 or 0.0))
    best = oracle.objective(oracle.solve(oracle.limit, oracle.own))
    kinds = job.dataset.kinds.get(column)
    name = kinds[int(oracle.group)] if kinds else f"{oracle.group:g}"
    constraint = f"problem.constraint=[{{kind='rmse',limit={oracle.limit},column='{column}'}}]"
    _, final = trained([*linear, *settings, *splits, constraint])
    found = next(each for each in final["limits"] if each["title"].endswith(f"= {name}"))
    return {
        "group": f"{column} = {name}",
        "limit": oracle.limit,
        "value": float(found["value"]),
        "kept": bool(final["kept"]),
        "objective": float(final["objective"]),
        "slsqp": best,
    }


def free(settings: Sequence[str], split: Sequence[str], model: str, seed: int) -> dict[str, Any]:
    """The test RMSE of a run without limits, and, for clients with rows, of scikit-learn."""
    said = [f"model.name={model}", *settings, *split, "problem.constraint=[]"]
    job, final = trained(said)
    told = {"rmse": float(final["test_rmse"])}
    if split == SPLITS["rows"]:
        told["scikit_learn"] = pooled(job.dataset, model, job.config.model.hidden, seed)
    return told


def key_of(target: str, what: str, split: str, seed: int, further: Sequence[str]) -> dict[str, Any]:
    return {"target": target, "what": what, "split": split, "seed": seed, "set": list(further)}


def compute(given: argparse.Namespace, cells: Cells) -> None:
    """Train all cells, seed by seed, linear models first."""
    with TemporaryDirectory() as made:
        tables = sources(given.data, Path(made))
        for seed in range(given.seeds):
            for what in ("linear", "limited", "mlp"):
                for target, own in tables.items():
                    if given.only not in target:
                        continue
                    for split, settings in SPLITS.items():
                        said = [*own, f"run.seed={seed}", *given.settings]
                        key = key_of(target, what, split, seed, given.settings)
                        made_by = (
                            partial(limited, said, settings)
                            if what == "limited"
                            else partial(free, said, settings, what, seed)
                        )
                        cells.compute(key, made_by)


def known(
    given: argparse.Namespace, cells: Cells, target: str, what: str
) -> dict[str, list[dict[str, Any]]]:
    """The cells of both splits for the seeds for which both are there."""
    found: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    for seed in range(given.seeds):
        pair = {
            split: cells.get(key_of(target, what, split, seed, given.settings)) for split in SPLITS
        }
        for split, values in pair.items():
            if values is not None and None not in pair.values():
                found[split].append(values)
    return found


def error_table(given: argparse.Namespace, cells: Cells) -> Iterator[dict[str, Any]]:
    """Means over the seeds of the RMSE, and their distances from scikit-learn's."""
    for target in TARGETS:
        for model in ("linear", "mlp"):
            found = known(given, cells, target, model)
            if not found["rows"]:
                continue
            them = float(np.mean([each["scikit_learn"] for each in found["rows"]]))
            line: dict[str, Any] = {"target": target, "model": model}
            line |= {"seeds": len(found["rows"]), "scikit-learn": f"{them:.5g}"}
            for split, own in found.items():
                mean = float(np.mean([each["rmse"] for each in own]))
                line[f"{split} divided"] = f"{mean:.5g} ({100 * (mean / them - 1):+.1f} %)"
            yield line


def limit_table(given: argparse.Namespace, cells: Cells) -> Iterator[dict[str, Any]]:
    """For each seed the value of the limited group, and the objective above SLSQP's."""
    for target in TARGETS:
        found = known(given, cells, target, "limited")
        for seed, pair in enumerate(zip(*found.values(), strict=True)):
            line = {"target": target, "seed": seed}
            line |= {"group": pair[0]["group"], "limit": f"{pair[0]['limit']:g}"}
            for split, each in zip(found, pair, strict=True):
                kept = "kept" if each["kept"] else "BROKEN"
                above = 100 * (each["objective"] / each["slsqp"] - 1)
                line[f"{split} divided"] = f"{each['value']:.5g} {kept}, objective {above:+.2f} %"
            yield line


def main() -> None:
    """Train the cells that are missing, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--only", default="", help="the targets whose names contain this")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--cells", type=Path, default=Path("runs/regression.jsonl"))
    given = parser.parse_args()
    part = read_parts()["regression"]
    cells = Cells(given.cells, part.digest())
    if not given.tables:
        if given.data is None:
            parser.error("--data: give the folder with the files")
        keep_compiled_programs()
        compute(given, cells)
    tables = {"errors": list(error_table(given, cells)), "limits": list(limit_table(given, cells))}
    shown = {name: table for name, table in tables.items() if table}
    evidence(part, cells, shown)
    print("\n\n".join(markdown(table) for table in shown.values()))


if __name__ == "__main__":
    main()
