"""Where training begins: at the model of an earlier run; and which parts of it are trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns, Dataset, Rows
from fedssca.errors import ConfigError, UserError
from fedssca.problem.parts import narrowed, places_of
from fedssca.problem.problem import Problem
from fedssca.rounds.personal import PersonalParts
from fedssca.run.build.choose import schedule_of
from fedssca.run.build.pose import network_of
from fedssca.run.saved import read_saved
from fedssca.run.schema import Config

__all__ = ["begun", "started", "trained_parts"]


def begun(config: Config, dataset: Dataset, clients: Rows | Columns, problem: Problem) -> Problem:
    """The problem with w(1) from the run `model.start`; a ConfigError if that has another network.

    What the inputs mean must be the same too: the names of the features and of the classes, in
    their order.
    """
    if not config.model.start:
        return problem
    state, w = read_saved(Path(config.model.start).expanduser(), lambda state, w, _: (state, w))
    blocks = clients.blocks if isinstance(clients, Columns) else None
    own = network_of(config, dataset, blocks)._asdict()
    pairs = [(name, theirs, own.get(name)) for name, theirs in state["network"].items()]
    pairs += [("features", state["features"], dataset.features)]
    pairs += [("classes", state["classes"], dataset.labels)]
    for name, theirs, ours in pairs:
        if name != "dtype" and theirs != _plain(ours):
            raise ConfigError(
                "model.start",
                f"model.start = {config.model.start!r}: its network has {name} = {_short(theirs)}, "
                f"this run {_short(ours)}; begin with a run of the same network, or leave it out",
            )
    return started(problem, w)


def started(problem: Problem, model: np.ndarray) -> Problem:
    """The problem with these parameters of the model in w(1); a UserError if they do not fit."""
    model = np.asarray(model)
    size = problem.model(problem.start).size
    if model.shape != (size,) or model.dtype.kind != "f" or not np.isfinite(model).all():
        raise UserError(
            f"model.start: the server sends {model.dtype} numbers of shape {model.shape}, the "
            f"network has {size} parameters; begin with a run of the same network"
        )
    return replace(problem, start=problem.extended(jnp.asarray(model, problem.start.dtype)))


def trained_parts(
    config: Config, dataset: Dataset, clients: Rows | Columns, problem: Problem
) -> Problem:
    """The problem in which only the parts `model.train` are trained; the rest stays at w(1)."""
    if config.model.own_parts:
        return _with_personal(config, dataset, problem)
    if not (names := config.model.trained):
        return problem
    blocks = clients.blocks if isinstance(clients, Columns) else None
    return narrowed(problem, places_of("model.train", network_of(config, dataset, blocks), names))


def _with_personal(config: Config, dataset: Dataset, problem: Problem) -> Problem:
    """The problem of the common parameters, whose clients train the others for themselves."""
    places = places_of("model.personal", network_of(config, dataset), config.model.own_parts)
    shared = np.setdiff1d(np.arange(problem.dimension), places)
    if not len(shared):
        raise ConfigError("model.personal", "model.personal names the whole network: leave a part")
    rate = schedule_of(config, config.algorithm.rate, "rate")
    return replace(narrowed(problem, shared), personal=PersonalParts(problem, shared, rate))


def _plain(value: Any) -> Any:
    """The value with tuples and arrays as lists, as files hold it."""
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value


def _short(value: Any) -> str:
    text = str(_plain(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
