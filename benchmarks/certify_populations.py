"""Populations of which everything is known: draws from them show whether promises were true.

Every population is a table of rows with features, a class, a group and a site. Real data are
populations too: rows are drawn from them with replacement, so the table itself is the truth.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedssca.data.fetch import cache_folder

__all__ = ["POPULATIONS", "Population"]

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


class Population(NamedTuple):
    """The rows, how many are drawn, and the limits of each kind."""

    x: np.ndarray
    y: np.ndarray
    group: np.ndarray
    site: np.ndarray
    train: int
    """Training rows of a draw."""
    calibration: int
    """Calibration rows of a draw."""
    limits: dict[str, float]
    """Kind of limit -> its value."""


def synthetic() -> Population:
    """Two groups and three sites whose features have other means."""
    rng, count = np.random.default_rng(0), 60_000
    site = rng.choice(3, size=count, p=(0.5, 0.3, 0.2))
    group = rng.random(count) < np.array([0.3, 0.4, 0.5])[site]
    x = rng.normal(size=(count, 5)) + 0.5 * group[:, None] + 0.4 * site[:, None] * (1, -1, 0, 1, 0)
    score = x @ np.array([1.0, -0.7, 0.4, 0.0, 0.3]) + rng.normal(size=count)
    limits = {"fnr": 0.15, "gap": 0.15, "loss": 0.55, "client": 0.6}
    return _population(x, score > 0.5, group, site, 600, 1000, limits)


def adult() -> Population:
    """Adult (1994): income, the sexes, three bands of age as sites."""
    rows = _read("adult.data", skip=0) + _read("adult.test", skip=1)
    number = [[float(row[i]) for i in (0, 4, 10, 11, 12)] for row in rows]
    x = np.array(number)
    x[:, 2:4] = np.log1p(x[:, 2:4])
    features = np.hstack(
        [x, _one_hot([row[5] for row in rows]), _one_hot([row[6] for row in rows])]
    )
    y = np.array([row[14].startswith(">") for row in rows])
    group = np.array([row[9] == "Female" for row in rows])
    site = np.digitize(x[:, 0], (30, 45))
    limits = {"fnr": 0.35, "gap": 0.12, "loss": 0.48, "client": 0.6}
    return _population(np.hstack([features, group[:, None]]), y, group, site, 900, 1500, limits)


def credit() -> Population:
    """Default of credit-card clients: small and large credit lines, education as sites."""
    rows = _read("UCI_Credit_Card.csv", skip=1)
    x = np.array([[float(cell) for cell in row[1:24]] for row in rows])
    amounts = np.sign(x[:, 11:]) * np.log1p(np.abs(x[:, 11:]))
    x = np.hstack([x[:, :11], amounts])
    y = np.array([float(row[24]) > 0 for row in rows])
    site = np.digitize(x[:, 2], (1.5, 2.5))
    limits = {"fnr": 0.5, "gap": 0.1, "loss": 0.51, "client": 0.58}
    return _population(x, y, x[:, 0] < np.median(x[:, 0]), site, 900, 1500, limits)


def breast() -> Population:
    """Breast cancer (Wisconsin): two groups and two sites by features of the tumour."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    group = data.data[:, 1] > np.median(data.data[:, 1])
    site = (data.data[:, 4] > np.median(data.data[:, 4])).astype(int)
    limits = {"fnr": 0.06, "gap": 0.35, "loss": 0.25, "client": 0.3}
    return _population(data.data, data.target == 0, group, site, 150, 400, limits)


def heart() -> Population:
    """Heart disease (UCI): the sexes, four hospitals, missing values replaced by means."""
    tables = [_read(f"processed.{name}.data", skip=0) for name in HOSPITALS]
    cells = [[np.nan if c == "?" else float(c) for c in row] for table in tables for row in table]
    table = np.array(cells)
    missing = np.isnan(table)
    x = np.where(missing, np.nanmean(table, axis=0), table)[:, :13]
    site = np.repeat(np.arange(len(tables)), [len(part) for part in tables])
    limits = {"fnr": 0.12, "gap": 0.3, "loss": 0.55, "client": 0.65}
    kinds = np.hstack([x, _one_hot(table[:, 2]), missing[:, [3, 10, 11, 12]]])
    return _population(kinds, table[:, 13] > 0, table[:, 1] == 0, site, 500, 800, limits)


def _population(
    x: np.ndarray,
    y: np.ndarray,
    group: np.ndarray,
    site: np.ndarray,
    train: int,
    calibration: int,
    limits: dict[str, float],
) -> Population:
    spread = x.std(axis=0)
    scaled = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
    whole = (np.asarray(each, np.int32) for each in (y, group, site))
    return Population(np.asarray(scaled, np.float32), *whole, train, calibration, limits)


def _read(name: str, skip: int) -> list[list[str]]:
    path = next(Path(cache_folder()).rglob(name), None)
    if path is None:
        raise SystemExit(f"{name} is not below {cache_folder()}: set FEDSSCA_DATA to its folder")
    with path.open() as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    return [row for row in rows[skip:] if len(row) > 1]


def _one_hot(values: Sequence[object]) -> np.ndarray:
    found = np.array([str(value) for value in values])
    return np.asarray(found[:, None] == np.unique(found)[None, :], float)


POPULATIONS: dict[str, Callable[[], Population]] = {
    "synthetic": synthetic,
    "adult": adult,
    "credit": credit,
    "breast": breast,
    "heart": heart,
}
