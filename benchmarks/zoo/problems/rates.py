"""Limits on rates of predictions: their values are counts, so that the optimum is a search."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import fedssca
from problems.case import ROWS, Case, case, dataset, file_of

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def limited(
    seed: int,
    columns: dict[str, np.ndarray],
    limits: Any,
    *,
    hidden: int = 0,
    batch: int = 100,
    rounds: int = 600,
    l2: float = 1e-3,
    clients: Any = None,
) -> Case:
    """Logistic regression, or the paper's network if `hidden` > 0; five clients."""
    width = columns["x"].shape[1]
    model = fedssca.mlp(width, hidden, 2) if hidden else fedssca.linear(width, 2)
    problem = fedssca.classifier(model, limits, l2=l2, seed=seed)
    clients = clients or fedssca.by_sample(columns, 5, "iid", seed=seed)
    return Case(problem, clients, batch, rounds, search="rates", exact=False, prices=False)


@case("rates")
def parity_adult(seed: int) -> Case:
    train = dataset("adult", ROWS).train
    return limited(seed, train, fedssca.parity_gap_at_most(0.05, train["sex"], "sex"))


@case("rates")
def parity_adult_network(seed: int) -> Case:
    train = dataset("adult", ROWS).train
    limits = fedssca.parity_gap_at_most(0.05, train["sex"], "sex")
    return limited(seed, train, limits, hidden=16)


@case("rates")
def opportunity_adult(seed: int) -> Case:
    train = dataset("adult", ROWS).train
    limits = fedssca.opportunity_gap_at_most(0.02, train["sex"], "sex", train["y"])
    return limited(seed, train, limits)


@case("rates")
def precision_adult(seed: int) -> Case:
    train = dataset("adult", ROWS).train
    return limited(seed, train, fedssca.precision_at_least(0.85, train["y"]))


@case("rates")
def fnr_credit(seed: int) -> Case:
    train = dataset("credit", ROWS).train
    return limited(seed, train, fedssca.false_negative_rate_at_most(0.4, train["y"]))


@case("rates")
def fpr_credit(seed: int) -> Case:
    train = dataset("credit", ROWS).train
    return limited(seed, train, fedssca.false_positive_rate_at_most(0.01, train["y"]))


@case("rates")
def parity_credit(seed: int) -> Case:
    train = dataset("credit", ROWS).train
    return limited(seed, train, fedssca.parity_gap_at_most(0.01, train["sex"], "sex"))


@case("rates")
def fnr_breast(seed: int) -> Case:
    train = dataset("breast-cancer").train
    limits = fedssca.false_negative_rate_at_most(0.01, train["y"])
    return limited(seed, train, limits, batch=10, rounds=1000)


@case("rates")
def fnr_breast_idle(seed: int) -> Case:
    """Hardly any regularisation: the limit is idle at the optimum, but not before it is near."""
    train = dataset("breast-cancer").train
    limits = fedssca.false_negative_rate_at_most(0.01, train["y"])
    return limited(seed, train, limits, batch=10, rounds=1000, l2=1e-5)


@case("rates")
def fnr_heart(seed: int) -> Case:
    clients = heart()
    columns = clients.columns
    limits = fedssca.false_negative_rate_at_most(0.1, columns["y"])
    return limited(seed, columns, limits, batch=20, rounds=600, clients=clients)


@case("rates")
def fpr_heart(seed: int) -> Case:
    clients = heart()
    columns = clients.columns
    limits = fedssca.false_positive_rate_at_most(0.1, columns["y"])
    return limited(seed, columns, limits, batch=20, rounds=600, clients=clients)


@functools.cache
def heart() -> Any:
    """Four hospitals (UCI heart disease); missing values are replaced by the mean of all rows."""
    parts = [
        np.genfromtxt(file_of(f"processed.{name}.data"), delimiter=",", missing_values="?")
        for name in HOSPITALS
    ]
    rows = np.concatenate(parts)
    raw = rows[:, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]
    raw = np.where(np.isnan(raw), np.nanmean(raw, axis=0), raw)
    x = ((raw - raw.mean(0)) / raw.std(0)).astype(np.float32)
    y = (rows[:, 13] > 0).astype(np.int32)
    return fedssca.Rows({"x": x, "y": y}, tuple(len(part) for part in parts))
