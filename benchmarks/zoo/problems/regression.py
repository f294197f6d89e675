"""Diabetes progression by least squares, such that the error of one sex is limited."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_diabetes

import fedssca
from problems.case import Case, Units, case, divide


def diabetes(
    batch: int,
    limit: float = 0.43,
    *,
    raw: bool = False,
    objective: float = 1.0,
    constraint: float = 1.0,
    feature: float = 1.0,
) -> Case:
    """The last three numbers change units; with `raw` the target is not standardised."""
    table = load_diabetes()
    x = table.data / table.data.std(0) * feature
    unit = float(table.target.std()) if raw else 1.0
    y = (table.target - table.target.mean()) / table.target.std() * unit
    group = (table.data[:, 1] > 0).astype(np.float32)
    share = float(group.mean())
    columns = {"x": x.astype(np.float32), "y": y.astype(np.float32), "g": group}

    def terms(params: Any, batch: Any) -> Any:
        w, b = params
        error = jnp.square(batch["x"] @ w + b * feature - batch["y"])
        return jnp.stack([objective * error, constraint * error * batch["g"] / share])

    start = (jnp.zeros(x.shape[1]), jnp.zeros(()))
    problem = fedssca.custom_problem(terms, start, limits=[limit * constraint * unit**2])
    units = Units(
        rate=1 / (objective * feature**2),
        length=unit / feature,
        price=objective / constraint**2 / unit**2,
        value=constraint * unit**2,
    )
    return Case(problem, divide(columns, 5), batch, 1000, units=units)


@case("regression")
def diabetes_80(seed: int) -> Case:
    return diabetes(80)


@case("regression", same_as="diabetes_80")
def diabetes_20(seed: int) -> Case:
    return diabetes(20)


@case("regression")
def diabetes_raw_80(seed: int) -> Case:
    return diabetes(80, raw=True)


@case("regression", same_as="diabetes_raw_80")
def diabetes_raw_20(seed: int) -> Case:
    return diabetes(20, raw=True)


@case("units")
def diabetes_objective_1000(seed: int) -> Case:
    return diabetes(80, objective=1000.0)


@case("units")
def diabetes_constraint_1000(seed: int) -> Case:
    return diabetes(80, constraint=1000.0)


@case("units")
def diabetes_features_1000(seed: int) -> Case:
    return diabetes(80, feature=1000.0)


@case("generic")
def idle_limit(seed: int) -> Case:
    """A limit that the optimum without it keeps."""
    return diabetes(20, 0.6)
