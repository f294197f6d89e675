"""Where training begins: at the model of an earlier run, if the config names one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns, Dataset, Rows
from fedssca.errors import ConfigError
from fedssca.problem.problem import Problem
from fedssca.run.build.pose import network_of
from fedssca.run.saved import read_saved
from fedssca.run.schema import Config

__all__ = ["begun"]


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
    return replace(problem, start=problem.extended(jnp.asarray(w, problem.start.dtype)))


def _plain(value: Any) -> Any:
    """The value with tuples and arrays as lists, as files hold it."""
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value


def _short(value: Any) -> str:
    text = str(_plain(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
