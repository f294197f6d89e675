"""Heart disease in four hospitals (UCI): every hospital is a client."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedssca.data.dataset import Array, Dataset, from_arrays
from fedssca.data.encode import as_text, standardise
from fedssca.data.files import stack_rows
from fedssca.data.raw import RawData, from_table
from fedssca.data.tables import Reading, Table

__all__ = ["HOSPITALS", "flamby_rows", "hospital_rows"]

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
_COLUMNS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang",
            "oldpeak", "slope", "ca", "thal", "num")  # fmt: skip
_READING = Reading(columns=_COLUMNS)
_ILL = "num > 0"
_CODES = ("cp", "restecg", "slope", "thal")
_NUMBERS = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
_TEST, _SEED = 0.34, 43


def hospital_rows(
    name: str, paths: Sequence[Path], fraction: float, seed: int, keep: Sequence[str]
) -> RawData:
    """All 920 rows with their missing cells; each hospital sets `fraction` aside for testing."""
    joined = stack_rows(paths, _READING)
    table = joined.table | {code: as_text(joined.table[code]) for code in _CODES}
    raw = from_table(name, table, _ILL, fraction, seed, keep, owners=joined.owners)
    ill = raw.labels.index(_ILL)
    return dataclasses.replace(raw, clients=HOSPITALS, positive=ill, reading=_READING)


def flamby_rows(name: str, paths: Sequence[Path], keep: Sequence[str]) -> Dataset:
    """The 740 rows and 13 features of FLamby's Fed-Heart-Disease, with its test rows.

    The columns slope, ca and thal are left out, then the rows with missing cells. cp and restecg
    are one-hot without their first value. Each hospital divides its rows with scikit-learn's
    `train_test_split` (34 % for testing, by class, random_state 43), and standardises x with the
    mean and the deviation (of n - 1) of its own training rows.
    """
    joined = stack_rows(paths, _READING)
    assert joined.owners is not None
    used = {c: v for c, v in joined.table.items() if c not in ("slope", "ca", "thal")}
    whole = ~np.isnan(np.stack(list(used.values()))).any(axis=0)
    table, owners = {c: v[whole] for c, v in used.items()}, joined.owners[whole]
    features, x = _features(table)
    y = (table.pop("num") > 0).astype(np.int32)
    train = np.zeros(len(y), bool)
    for hospital in range(len(HOSPITALS)):
        own = np.flatnonzero(owners == hospital)
        train[own[_training(y[own])]] = True
        fitted = x[own[train[own]]]
        x[own] = standardise(x[own], fitted.mean(axis=0), fitted.std(axis=0, ddof=1))
    columns = {"x": x.astype(np.float32), "y": y, **table}
    own_rows, held = ({c: v[rows] for c, v in columns.items()} for rows in (train, ~train))
    made = from_arrays(name, own_rows, held, 1.0, _TEST, 0, keep)
    return dataclasses.replace(
        made,
        features=features,
        labels=("num <= 0", _ILL),
        positive=1,
        owners=owners[train],
        test_owners=owners[~train],
        clients=HOSPITALS,
    )


def _features(table: Table) -> tuple[tuple[str, ...], Array]:
    """The names and the values of the features before they are standardised."""
    made = {column: table[column] for column in _NUMBERS}
    for column in ("cp", "restecg"):
        for code in np.unique(table[column])[1:]:
            made[f"{column}={code:g}"] = (table[column] == code) * 1.0
    return tuple(made), np.stack(list(made.values()), axis=1)


def _training(y: Array) -> Array:
    """The training rows of a hospital."""
    from sklearn.model_selection import train_test_split

    by_class = y if np.bincount(y, minlength=2).min() > 2 else None
    rows = np.arange(len(y))
    sizes = {"test_size": _TEST, "train_size": 1 - _TEST}
    return np.asarray(train_test_split(rows, **sizes, random_state=_SEED, stratify=by_class)[0])
