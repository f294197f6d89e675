"""Loss, metrics and limits of a trained model on new rows with labels.

They are computed exactly as a run computes those of its held-out rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedssca.data import Dataset, Rows
from fedssca.data.encode import as_text, is_text, named_cells
from fedssca.evaluate.class_metrics import class_metrics, label_metrics
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.evaluate.limits import limits_on
from fedssca.problem.problem import Problem
from fedssca.run.build import problem_of
from fedssca.run.model.trained import TrainedModel

__all__ = ["evaluate_rows", "held_out_metrics", "labelled_rows", "problem_again"]

Array = np.ndarray


def problem_again(model: TrainedModel) -> Problem:
    """The problem of the run, posed again from the counts that were saved with the model."""
    rows = model.counted.rows(model.network.features, set(model.kinds))
    dataset = Dataset(
        name="saved",
        train=rows.columns,
        test={},
        classes=len(model.classes),
        scale=model.network.scale,
        features=model.features,
        labels=model.classes,
        kinds=model.kinds,
        positive=model.positive,
        encoder=model.encoder,
        target=model.target,
        sets=not model.exclusive,
    )
    blocks = [np.array(block) for block in model.blocks]
    data = dataclasses.replace(model.config.data, weight="")  # only the objective has weights
    config = dataclasses.replace(model.config, data=data)
    return problem_of(config, dataset, rows, blocks or None, model.network)


def evaluate_rows(
    model: TrainedModel, table: Mapping[str, Array], x: Array, y: Array
) -> dict[str, Any]:
    """The quantities of the run on rows with labels y, and each limit with its counts."""
    with model.own_precision():
        problem = problem_again(model)
        columns = labelled_rows(model, table, x, y)
        evaluator = evaluator_over(problem, Rows(columns, (len(x),)), columns)
        w = problem.extended(jnp.asarray(model.w))
        row = evaluator.row(w)
        values = {n.removeprefix("test_"): v for n, v in row.items() if n.startswith("test_")}
        values |= _class_metrics(model, x, y)
        return {"rows": len(x), **values, "limits": limits_on(problem, evaluator.tally(w))}


def held_out_metrics(model: TrainedModel, test: Mapping[str, Array]) -> dict[str, Any]:
    """The metrics of a classifier on held-out rows that are no sums over rows, such as test_auc.

    Of several labels test_per_label has those of every single label.

    They are computed where the rows are: sites of a deployment have none in common.
    """
    if not len(test.get("x", ())):
        return {}
    found = _class_metrics(model, test["x"], np.asarray(test["y"]))
    return {f"test_{name}": value for name, value in found.items()}


def _class_metrics(model: TrainedModel, x: Array, y: Array) -> dict[str, Any]:
    if model.target is not None:
        return {}
    chances = model.chances(model.scores(x))
    if model.exclusive:
        return class_metrics(chances, y)
    return label_metrics(chances, model.task.labels(y, model.classes), model.classes)


def labelled_rows(
    model: TrainedModel, table: Mapping[str, Array], x: Array, y: Array
) -> dict[str, Array]:
    """Encoded rows x with the labels y and the columns of `table` that limits use."""
    beside = {name: _beside(model, name, table, len(x)) for name in _columns(model)}
    return {"x": x, "y": y, **beside}


def _columns(model: TrainedModel) -> list[str]:
    return [name for name in model.counted.columns if name != "y"]


def _beside(model: TrainedModel, name: str, table: Mapping[str, Array], rows: int) -> Array:
    """A column that limits use; a row in none of the known groups has -1 or NaN."""
    if name not in model.kinds:
        numbers = name in table and not is_text(table[name])
        return table[name].astype(np.float32) if numbers else np.full(rows, np.nan, np.float32)
    if name not in table:
        return np.full(rows, -1, np.int32)
    places = {kind: place for place, kind in enumerate(model.kinds[name])}
    cells = named_cells(as_text(table[name]))
    return np.array([places.get(cell, -1) for cell in cells.tolist()], np.int32)
