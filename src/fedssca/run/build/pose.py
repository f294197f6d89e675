"""The problem of a run: model, objective and limits as its config says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedssca.data import Columns, Dataset, Rows
from fedssca.problem.constraints import (
    TrainingRows,
    from_config,
    parts_from_config,
    promised,
)
from fedssca.problem.constraints.cells import cells_of
from fedssca.problem.constraints.worst import MOST_GROUPS
from fedssca.problem.models import Model, Network, classifier
from fedssca.problem.problem import Part, Problem
from fedssca.run.schema import Config

__all__ = ["l2_of", "model_of", "network_of", "problem_of"]

IMAGES = 1e-5
"""The weight of |w|^2 beside the loss of images."""


def problem_of(
    config: Config,
    dataset: Dataset,
    clients: Rows | Columns,
    features: Sequence[np.ndarray] | None = None,
) -> Problem:
    """The problem that a config names; `features`: for parties with these columns in any case."""
    blocks = clients.blocks if isinstance(clients, Columns) else None
    posed, rows = config.problem, _rows(dataset, clients)
    made = classifier(
        model_of(config, dataset),
        [
            made
            for entry in posed.constraint
            for made in promised(
                from_config(entry.kind, entry.limit, entry.options, rows),
                entry.confidence or posed.confidence,
            )
        ],
        objective=posed.objective,
        l2=l2_of(config, dataset, clients),
        features=blocks if features is None else features,
        seed=config.run.seed,
        **parts_from_config(posed.objective, posed.column, rows),
    )
    return replace(made, parts=_parts(config, rows))


def l2_of(config: Config, dataset: Dataset, clients: Rows | Columns) -> float:
    """The weight of |w|^2 beside the mean loss, if it is left open.

    1e-5 as in the paper for images. For N rows of standardised columns 1 / (2 N), the weight that
    scikit-learn's logistic regression has, and 2 / N for a network, which has more parameters: on
    small tables smaller weights let the model overfit.
    """
    given = config.problem.l2
    if given is not None:
        return given
    if dataset.scale != 1:
        return IMAGES
    return max(IMAGES, (0.5 if config.model.name == "linear" else 2.0) / clients.total)


def _parts(config: Config, rows: TrainingRows) -> tuple[Part, ...]:
    """The groups of rows that the objective and the limits speak of; not if they are too many."""
    posed = config.problem
    used: list[tuple[list[str], dict[str, list[float]]]] = []
    if posed.column:
        used.append(([posed.column], {}))
    used += [(entry.grouped, entry.edges) for entry in posed.constraint if entry.grouped]
    made: dict[tuple[str, str], Part] = {}
    for names, bins in used:
        own = {name: rows.columns[name] for name in names}
        cells = cells_of("per_group", own, rows.kinds, bins)
        for cell in cells if len(cells) <= MOST_GROUPS else ():
            heading = ", ".join(names)
            made[heading, cell.short] = Part(heading, cell.short, cell.own)
    return tuple(made.values())


def model_of(config: Config, dataset: Dataset) -> Model:
    """The network that a config names, for this data."""
    return network_of(config, dataset).model()


def network_of(config: Config, dataset: Dataset) -> Network:
    """The same in plain values."""
    width, model = dataset.train["x"].shape[1], config.model
    return Network(
        model.name,
        width,
        dataset.classes,
        model.hidden,
        model.activation,
        dataset.scale,
        config.run.precision,
    )


def _rows(dataset: Dataset, clients: Rows | Columns) -> TrainingRows:
    sizes, names = (clients.sizes, clients.names) if isinstance(clients, Rows) else (None, ())
    return TrainingRows(
        clients.beside(), dataset.labels, sizes, dataset.positive, dataset.kinds, names
    )
