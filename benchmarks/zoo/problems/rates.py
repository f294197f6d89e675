"""Limits on rates of predictions: their values are counts, so that the optimum is a search."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

import fedssca
from problems.case import ROWS, Case, Counts, case, dataset, file_of

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


class Limit(NamedTuple):
    """A limit on a rate, as the product takes it and as sums over predictions."""

    constraints: Any
    weights: np.ndarray
    bounds: np.ndarray


def fnr(limit: float, y: np.ndarray) -> Limit:
    weights = np.where(y == 1, -1.0, 0.0) / np.sum(y == 1)
    own = fedssca.false_negative_rate_at_most(limit, y)
    return Limit(own, weights[None], np.array([limit - 1]))


def fpr(limit: float, y: np.ndarray) -> Limit:
    weights = (y != 1) / np.sum(y != 1)
    return Limit(fedssca.false_positive_rate_at_most(limit, y), weights[None], np.array([limit]))


def precision(limit: float, y: np.ndarray) -> Limit:
    weights = np.where(y == 1, limit - 1, limit) / np.sum(y == 1)
    return Limit(fedssca.precision_at_least(limit, y), weights[None], np.zeros(1))


def gap(limit: float, sex: np.ndarray, y: np.ndarray | None = None) -> Limit:
    """Parity, or with labels equal opportunity."""
    values, own = np.unique(sex), np.ones(len(sex), bool) if y is None else y == 1
    high, low = ((sex == value) & own for value in values[::-1])
    weights = high / high.sum() - low / low.sum()
    if y is None:
        constraints = fedssca.parity_gap_at_most(limit, sex, "sex")
    else:
        constraints = fedssca.opportunity_gap_at_most(limit, sex, "sex", y)
    return Limit(constraints, np.stack([weights, -weights]), np.full(2, limit))


def limited(
    seed: int,
    columns: dict[str, np.ndarray],
    limit: Limit,
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
    problem = fedssca.classifier(model, limit.constraints, l2=l2, seed=seed)
    clients = clients or fedssca.by_sample(columns, 5, "iid", seed=seed)

    def margin(w: Any, x: Any) -> Any:
        top, bottom = problem.unravel(w)
        scores = model.top(top, model.local(bottom, x))
        return scores[:, 1] - scores[:, 0]

    counts = Counts(margin, limit.weights, limit.bounds, l2, None if hidden else 0)
    return Case(
        problem,
        clients,
        batch,
        rounds,
        search="rates",
        exact=False,
        prices=False,
        counts=counts,
    )


@case("rates")
def parity_adult(seed: int) -> Case:
    train = dataset("adult", ROWS).train
    return limited(seed, train, gap(0.05, train["sex"]))


@case("rates")
def parity_adult_network(seed: int) -> Case:
    train = dataset("adult", ROWS).train
    return limited(seed, train, gap(0.05, train["sex"]), hidden=16)


@case("rates")
def opportunity_adult(seed: int) -> Case:
    train = dataset("adult", ROWS).train
    return limited(seed, train, gap(0.02, train["sex"], train["y"]))


@case("rates")
def precision_adult(seed: int) -> Case:
    train = dataset("adult", ROWS).train
    return limited(seed, train, precision(0.85, train["y"]))


@case("rates")
def fnr_credit(seed: int) -> Case:
    train = dataset("credit", ROWS).train
    return limited(seed, train, fnr(0.4, train["y"]))


@case("rates")
def fpr_credit(seed: int) -> Case:
    train = dataset("credit", ROWS).train
    return limited(seed, train, fpr(0.01, train["y"]))


@case("rates")
def parity_credit(seed: int) -> Case:
    train = dataset("credit", ROWS).train
    return limited(seed, train, gap(0.01, train["sex"]))


@case("rates")
def fnr_breast(seed: int) -> Case:
    train = dataset("breast-cancer").train
    return limited(seed, train, fnr(0.01, train["y"]), batch=10, rounds=1000)


@case("rates")
def fnr_breast_idle(seed: int) -> Case:
    """Hardly any regularisation: the limit is idle at the optimum, but not before it is near."""
    train = dataset("breast-cancer").train
    return limited(seed, train, fnr(0.01, train["y"]), batch=10, rounds=1000, l2=1e-5)


@case("rates")
def fnr_heart(seed: int) -> Case:
    clients = heart()
    columns = clients.columns
    return limited(seed, columns, fnr(0.1, columns["y"]), batch=20, clients=clients)


@case("rates")
def fpr_heart(seed: int) -> Case:
    clients = heart()
    columns = clients.columns
    return limited(seed, columns, fpr(0.1, columns["y"]), batch=20, clients=clients)


@functools.cache
def heart() -> Any:
    """Four hospitals (UCI heart disease); missing values are replaced by the mean of all rows."""
    parts = [
        np.genfromtxt(file_of(f"processed.{name}.data"), delimiter=",", missing_values="?")
        for name in HOSPITALS
    ]
    rows = np.concatenate(parts)
    raw = rows[:, :10]
    raw = np.where(np.isnan(raw), np.nanmean(raw, axis=0), raw)
    x = ((raw - raw.mean(0)) / raw.std(0)).astype(np.float32)
    y = (rows[:, 13] > 0).astype(np.int32)
    return fedssca.Rows({"x": x, "y": y}, tuple(len(part) for part in parts))
