"""How often promises about new rows are false: certified limits, and limits on training rows alone.

    python benchmarks/certify.py --draws 100                     # a population of known truth
    python benchmarks/certify.py --draws 100 --case adult --data DIR

Each draw takes a small training and calibration set from the population, trains, and looks whether
the limits hold on the population. Printed per case: the share of draws in which the certified
statement was false, how often a certificate was given, and the share in which a model that keeps
its limits on all of the same rows (no calibration rows) breaks them on the population.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any, NamedTuple

import numpy as np

import fedssca

Table = dict[str, np.ndarray]
DELTA = 0.05


class Case(NamedTuple):
    """A population, and the limits on it."""

    population: Table
    rows: int
    """Training and calibration rows of one draw."""
    limits: Any
    """training rows -> constraints."""


def synthetic(rng: np.random.Generator, data: str) -> Case:
    """Two groups and two classes; false-negative rate, parity and loss are limited."""
    del data
    count = 200_000
    group = (rng.random(count) < 0.4).astype(np.int32)
    x = rng.normal(size=(count, 4)).astype(np.float32) + 0.5 * group[:, None]
    score = x @ np.array([1.0, -0.7, 0.4, 0.0]) + rng.normal(size=count)
    table = {"x": x, "y": (score > 0.5).astype(np.int32), "group": group}

    def limits(train: Table) -> list[Any]:
        return [
            *fedssca.false_negative_rate_at_most(0.2, train["y"], positive=1),
            *fedssca.parity_gap_at_most(0.12, train["group"], "group", positive=1),
            *fedssca.loss_at_most(0.6),
        ]

    return Case(table, 1500, limits)


def adult(rng: np.random.Generator, data: str) -> Case:
    """Adult: the gap between the sexes is limited."""
    del rng
    from pathlib import Path

    loaded = fedssca.load("adult", directory=Path(data))
    names = ("x", "y", "sex")
    table = {n: np.concatenate([loaded.train[n], loaded.test[n]]) for n in names}
    table["sex"] = table["sex"].astype(np.int32)

    def limits(train: Table) -> list[Any]:
        return [*fedssca.parity_gap_at_most(0.08, train["sex"], "sex", positive=1)]

    return Case(table, 3000, limits)


CASES = {"synthetic": synthetic, "adult": adult}


def trained(train: Table, limits: Any, calibration: Any, seed: int) -> Any:
    """A linear model of two clients."""
    clients = fedssca.by_sample(train, clients=2)
    problem = fedssca.classifier(fedssca.linear(train["x"].shape[1], 2), limits(train))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = fedssca.auto(problem, clients, batch=50, rounds=60)
        found = fedssca.simulate(
            problem, clients, steps, 60, seed, calibration=calibration, progress=False
        )
    return problem, found


def breaks(problem: Any, w: np.ndarray, population: Table) -> bool:
    """Whether a limit is broken on the whole population."""
    from fedssca.data import Rows
    from fedssca.evaluate.evaluator import evaluator_over
    from fedssca.problem.limits import stated

    rows = Rows(population, (len(population["y"]),))
    tally = evaluator_over(problem, rows, None).tally(w)
    for limit in stated(problem.bounds):
        value = tally.estimate(tally.sums.train, limit.quantity).value
        if limit.excess(value) > 0:
            return True
    return False


def main() -> None:
    """Draw, train, judge, and print one JSON object per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--case", choices=CASES, default="synthetic")
    parser.add_argument("--data", default="")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    case = CASES[given.case](rng, given.data)
    false = certified = plain = feasible = 0
    for draw in range(given.draws):
        rows = rng.permutation(len(case.population["y"]))[: case.rows]
        cut = int(0.7 * case.rows)
        parts = [
            {n: v[part] for n, v in case.population.items()} for part in (rows[:cut], rows[cut:])
        ]
        held = parts[1] | {"client": np.zeros(len(parts[1]["y"]), np.int32)}
        promise = fedssca.Calibration(held, 1 - DELTA)
        problem, found = trained(parts[0], case.limits, promise, draw)
        if found.certificate["certified"]:
            certified += 1
            false += breaks(problem, found.w, case.population)
        everything = {n: v[rows] for n, v in case.population.items()}
        problem, found = trained(everything, case.limits, None, draw)
        if found.feasible:
            feasible += 1
            plain += breaks(problem, found.w, case.population)
        if (draw + 1) % 10 == 0 or draw + 1 == given.draws:
            told = {
                "case": given.case,
                "draws": draw + 1,
                "certified": certified,
                "false_statements": false,
                "kept_on_training_rows": feasible,
                "of_these_broken_on_the_population": plain,
            }
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
