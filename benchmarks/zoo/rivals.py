"""The usual methods with tuned settings: the best of a fixed list of trials per problem.

Trial i of a method is point i of one low-discrepancy sequence in the ranges that `fedssca tune`
searches, in the units of the problem. The rate falls linearly to 0 over the last 80 % of the rounds
in all trials, which serves every method better than a constant one.
"""

from __future__ import annotations

from typing import Any

from problems import Case
from scipy.stats import qmc

import fedssca
from fedssca.run.tune.space import SPACES

TRIALS = 12
RIVALS = ("penalty", "primal-dual", "augmented", "switching")
FREE = ("sgd",)
"""What is compared where there is no limit."""
BUILD: dict[str, Any] = {
    "penalty": fedssca.quadratic_penalty,
    "primal-dual": fedssca.primal_dual,
    "augmented": fedssca.augmented_lagrangian,
    "switching": fedssca.switching,
}


def fitting(case: Case) -> tuple[str, ...]:
    """The rivals that can be used for a problem."""
    return RIVALS if case.problem.constraints else FREE


def settings(method: str, trial: int, case: Case) -> dict[str, float]:
    """The settings of a trial."""
    point = qmc.Halton(5, scramble=True, rng=0).random(TRIALS)[trial]
    space = (SPACES["penalty"][:1]) if method == "sgd" else SPACES[method]
    units = case.units
    factor = {
        "rate": units.length if method == "switching" else units.rate,
        "momentum": 1.0,
        "dual_rate": units.price,
        "penalty": units.price,
        "tolerance": units.value,
    }
    found = {}
    for part, quantile in zip(space, point, strict=False):
        name = next(word for word in part.key.split(".") if word in factor)
        found[name] = part.at(float(quantile), norm=False) * factor[name]
    return found


def rival(method: str, trial: int, case: Case) -> Any:
    """The algorithm of a trial."""
    given: dict[str, Any] = settings(method, trial, case)
    rate = fedssca.Schedule(given.pop("rate"), cool=0.8, horizon=case.rounds)
    if method == "sgd":
        return fedssca.sgd(case.problem, batch=case.batch, rate=rate)
    if "dual_rate" in given:
        given["dual_rate"] = fedssca.Schedule(given["dual_rate"])
    return BUILD[method](case.problem, batch=case.batch, rate=rate, **given)
