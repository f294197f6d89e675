"""The problem of a run: model, objective and limits as its config says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedssca.data import Columns, Dataset, Rows, by_feature
from fedssca.data.encode import TargetScale
from fedssca.errors import UserError, nearest
from fedssca.problem.constraints import (
    TrainingRows,
    from_config,
    parts_from_config,
    promised,
)
from fedssca.problem.constraints.cells import cells_of
from fedssca.problem.constraints.worst import MOST_GROUPS
from fedssca.problem.models import classifier
from fedssca.problem.networks import Network
from fedssca.problem.problem import Part, Problem
from fedssca.problem.tasks import UNIT, Task, classification, multilabel, regression
from fedssca.problem.weights import class_weights, weighted
from fedssca.run.schema import Config

__all__ = ["l2_of", "network_of", "problem_of", "task_of"]

IMAGES = 1e-5
"""The weight of |w|^2 beside the loss of images."""


def problem_of(
    config: Config,
    dataset: Dataset,
    clients: Rows | Columns,
    features: Sequence[np.ndarray] | None = None,
    network: Network | None = None,
) -> Problem:
    """The problem that a config names; `features`: for parties with these columns in any case.

    `network` is that of a saved model; without it the config and the data say it.
    """
    if features is None and isinstance(clients, Columns):
        features = clients.blocks
    posed, rows = config.problem, _rows(config, dataset, clients)
    made = classifier(
        (network or network_of(config, dataset, features)).model(),
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
        features=features,
        seed=config.run.seed,
        task=_weighted(config, dataset, rows),
        **parts_from_config(posed.objective, posed.column, rows),
    )
    return replace(made, parts=_parts(config, rows))


def _weighted(config: Config, dataset: Dataset, rows: TrainingRows) -> Task:
    """The task with the weights of classes and of rows in its objective."""
    asked, classes = config.problem.class_weights, None
    if asked is not None:
        y = rows.columns["y"]
        classes = class_weights(asked, y, dataset.labels, "problem.class_weights")
    return weighted(task_of(config, dataset.target), classes, bool(config.data.weight))


def task_of(config: Config, target: TargetScale | None) -> Task:
    """The task that a config names, with the unit of its target."""
    posed = config.problem
    if posed.task == "classification":
        return classification(posed.loss)
    if posed.task == "multilabel":
        return multilabel(config.data.labels, posed.loss)
    return regression(
        posed.loss or "squared",
        target or UNIT,
        width=posed.huber_width,
        quantile_level=posed.quantile,
    )


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


def network_of(
    config: Config, dataset: Dataset, features: Sequence[np.ndarray] | None = None
) -> Network:
    """The network that a config names, for this data; `features` are the columns of parties."""
    width, model = dataset.train["x"].shape[1], config.model
    plain = isinstance(model.hidden, int) and not model.layer_norm
    paper = model.name == "mlp" and plain and config.problem.task == "classification"
    biases = (model.joins or not paper) if model.biases is None else model.biases
    task = task_of(config, dataset.target)
    network = Network(
        model.name,
        width,
        task.outputs(dataset.classes),
        model.hidden,
        model.activation,
        dataset.scale,
        config.run.precision,
        biases,
        model.layer_norm,
        options=model.options or {},
        exclusive=task.decisions.exclusive,
    )
    if not model.joins:
        own = features if model.own and features is not None else ()
        return network._replace(parties=[[int(place) for place in party] for party in own])
    if model.embed is not None:
        return _embedded(network, model.embed, dataset, features)
    parties = _parties(model.parties, dataset, width) if features is None else features
    convolved: dict[str, Any] = {}
    if model.name == "cnn":
        convolved = {
            name: getattr(model, name) for name in ("channels", "kernel", "pool", "pooling")
        }
        convolved["image"] = model.image or _square(width)
    return network._replace(
        parties=[[int(place) for place in own] for own in parties],
        bottom=model.bottom,
        join=model.join or ("sum" if model.bottom else "concatenate"),
        **convolved,
    )


def _embedded(
    network: Network, size: int, dataset: Dataset, features: Sequence[np.ndarray] | None
) -> Network:
    """The network whose bottoms are the embeddings of categories, and one for all other columns.

    The one-hot columns of a category times a matrix are the row of that category: its embedding.
    Each of several parties with the columns `features` has its own embeddings, and one more bottom
    for its other columns.
    """
    hidden = [network.hidden] if isinstance(network.hidden, int) else list(network.hidden)
    parties: list[list[int]] = []
    bottom: list[list[int]] = []
    embedded = 0
    for party in [np.arange(network.features)] if features is None else features:
        held = [int(place) for place in party]
        own = [[place for place in held if place in kinds] for kinds in dataset.category_places]
        many = [places for places in own if len(places) > size]
        embedded += len(many)
        used = {place for places in many for place in places}
        rest = [place for place in held if place not in used]
        parties += [*many, *([rest] if rest else [])]
        bottom += [*([size] for _ in many), *([hidden[:1]] if rest else [])]
    if not embedded:
        raise UserError(
            f"model.embed = {size}: no column has more than {size} categories; leave it out"
        )
    return network._replace(parties=parties, bottom=bottom, hidden=hidden, join="concatenate")


def _parties(asked: int | list[list[str]] | None, dataset: Dataset, width: int) -> list[Any]:
    """The columns of each bottom: all of them, equal parts in order, or by their names."""
    if asked is None or isinstance(asked, int):
        if (asked or 1) > width:
            raise UserError(f"model.parties = {asked}: the data have {width} features only")
        return list(by_feature(dataset.train, asked or 1).blocks)
    places = _places(dataset)
    found = []
    for names in asked:
        for name in names:
            if name not in places:
                raise UserError(f"model.parties: no column {name!r}; {nearest(name, places)}")
        found.append(sorted(place for name in names for place in places[name]))
    held = [place for own in found for place in own]
    if missing := [name for name, own in places.items() if not set(own) <= set(held)]:
        raise UserError(
            f"model.parties: column {missing[0]!r} belongs to no party; give every column to one"
        )
    if len(held) > width:
        raise UserError("model.parties: a column belongs to two parties; give each to one")
    return found


def _places(dataset: Dataset) -> dict[str, list[int]]:
    """The places of the features that were made of each raw column."""
    if dataset.encoder is None:
        return {name: [place] for place, name in enumerate(dataset.features)}
    found, begin = {}, 0
    for column in dataset.encoder.columns:
        found[column.name] = list(range(begin, begin + len(column.features)))
        begin += len(column.features)
    return found


def _square(width: int) -> list[int]:
    """The shape of square images of so many pixels."""
    side = math.isqrt(width)
    if side * side != width:
        raise UserError(
            f'model.name = "cnn": {width} features are no square image; set model.image = '
            "[height, width] or [height, width, channels]"
        )
    return [side, side]


def _rows(config: Config, dataset: Dataset, clients: Rows | Columns) -> TrainingRows:
    sizes, names = (clients.sizes, clients.names) if isinstance(clients, Rows) else (None, ())
    columns = dict(clients.beside())
    task = task_of(config, dataset.target)
    return TrainingRows(
        columns | {"y": task.labels(columns["y"], dataset.labels)},
        dataset.labels,
        sizes,
        dataset.positive,
        dataset.kinds,
        names,
        task.name,
    )
