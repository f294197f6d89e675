"""Weights of classes and of single rows in the objective.

With weights a_l of the classes and b_n of the rows the objective is

    F_0(w) = mean_n a_{y_n} b_n loss_n(w) + l2 |w|^2,

so that a row of weight 2 counts as two rows. Limits and metrics are about rows as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError, nearest
from fedssca.problem.problem import Array, Batch
from fedssca.problem.tasks import Task

__all__ = ["SAMPLE_WEIGHT", "ClassWeights", "class_weights", "sample_weights", "weighted"]

SAMPLE_WEIGHT = "sample_weight"
"""The name, in a batch, of the column with the weights of the rows."""
ClassWeights: TypeAlias = str | Mapping[Any, float]
"""The word "balanced", or the weights of classes by their names; others have the weight 1."""


def class_weights(
    asked: ClassWeights, y: np.ndarray, names: Sequence[Any], key: str = "class_weights"
) -> np.ndarray:
    """The weight of each class; "balanced" is N / (L N_l) for N_l of the N training rows.

    >>> class_weights("balanced", np.array([0, 0, 0, 1]), ["well", "sick"]).tolist()
    [0.6666666666666666, 2.0]
    """
    if isinstance(asked, str):
        if asked != "balanced":
            raise UserError(f'{key} = {asked!r}: it must be "balanced" or a table of numbers')
        counts = np.bincount(np.asarray(y, int), minlength=len(names))
        return np.asarray(len(y) / (len(names) * np.maximum(counts, 1)))
    places = {str(name): place for place, name in enumerate(names)}
    found = np.ones(len(names))
    for name, weight in asked.items():
        if str(name) not in places:
            raise UserError(f"{key}: there is no class {str(name)!r}; {nearest(str(name), places)}")
        found[places[str(name)]] = _checked(np.array([weight], float), key)[0]
    if not found.any():
        raise UserError(f"{key}: all weights are 0; give one class more")
    return found


def sample_weights(where: str, cells: np.ndarray) -> np.ndarray:
    """The weights of rows as float32; a UserError unless they are numbers of 0 or more."""
    if cells.ndim != 1 or cells.dtype.kind not in "biuf":
        raise UserError(f"{where}: sample weights must be one number per row, and are no numbers")
    found = _checked(cells.astype(np.float32), where)
    if not found.any():
        raise UserError(f"{where}: all sample weights are zero; give some rows more")
    return found


def _checked(weights: np.ndarray, where: str) -> np.ndarray:
    """The weights; a UserError if one of them is negative or not finite."""
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(bad):
        row = f" in row {bad[0] + 1}" if len(weights) > 1 else ""
        raise UserError(f"{where}: the weight is {weights[bad[0]]:g}{row}; it must be 0 or more")
    return weights


def weighted(task: Task, classes: np.ndarray | None = None, rows: bool = False) -> Task:
    """The task with an objective that weighs classes, and `rows` by their sample weights."""
    if classes is None and not rows:
        return task

    def weight(batch: Batch) -> Array:
        own = jnp.ones(len(batch["y"]))
        if classes is not None:
            own = jnp.asarray(classes, own.dtype)[batch["y"].astype(jnp.int32)]
        return own * batch[SAMPLE_WEIGHT] if rows else own

    return task._replace(weight=weight)
