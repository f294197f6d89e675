"""The problem of a run: model, objective and limits as its config says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedssca.data import Columns, Dataset, Rows
from fedssca.problem.constraints import (
    Constraint,
    TrainingRows,
    from_config,
    parts_from_config,
)
from fedssca.problem.constraints.worst import MOST_GROUPS
from fedssca.problem.models import classifier, linear, mlp
from fedssca.problem.problem import Part, Problem
from fedssca.run.schema import Config, ConstraintSettings

__all__ = ["model_of", "problem_of"]


def problem_of(
    config: Config,
    dataset: Dataset,
    clients: Rows | Columns,
    features: Sequence[np.ndarray] | None = None,
) -> Problem:
    """The problem that a config names; `features`: for parties with these columns in any case."""
    blocks = clients.blocks if isinstance(clients, Columns) else None
    posed, sizes = config.problem, clients.sizes if isinstance(clients, Rows) else None
    made = classifier(
        model_of(config, dataset),
        [c for entry in posed.constraint for c in _limits(entry, dataset, clients)],
        objective=posed.objective,
        l2=posed.l2,
        features=blocks if features is None else features,
        seed=config.run.seed,
        **parts_from_config(posed.objective, posed.column, clients.beside(), sizes),
    )
    columns = clients.beside()
    return replace(
        made,
        parts=tuple(part for name in posed.columns for part in _parts(name, columns[name])),
    )


def _parts(column: str, values: np.ndarray) -> list[Part]:
    """The groups of rows with the same value in a column; none if it has too many values."""

    def one(value: Any) -> Part:
        return Part(column, f"{value:g}", lambda batch: batch[column] == value)

    found = np.unique(values)
    return [one(value) for value in found] if len(found) <= MOST_GROUPS else []


def model_of(config: Config, dataset: Dataset) -> Any:
    """The network that a config names, for this data."""
    width, model = dataset.train["x"].shape[1], config.model
    shape: dict[str, Any] = {"scale": dataset.scale, "dtype": config.run.precision}
    table = {
        "mlp": lambda: mlp(width, model.hidden, dataset.classes, model.activation, **shape),
        "linear": lambda: linear(width, dataset.classes, **shape),
    }
    return table[model.name]()


def _limits(
    entry: ConstraintSettings, dataset: Dataset, clients: Rows | Columns
) -> list[Constraint]:
    sizes, names = (clients.sizes, clients.names) if isinstance(clients, Rows) else (None, ())
    rows = TrainingRows(
        clients.beside(), dataset.labels, sizes, dataset.positive, dataset.kinds, names
    )
    return from_config(entry.kind, entry.limit, entry.options, rows)
