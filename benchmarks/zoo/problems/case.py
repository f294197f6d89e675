"""What a problem of the zoo consists of, the list of them, and the tables they use."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import fedssca
from fedssca.data.fetch import cache_folder, locate

ROWS = 6000
"""The rows of Adult and credit that are used, so that a run takes seconds."""


class Units(NamedTuple):
    """What the ranges of the settings of rivals are multiplied by, for problems in odd units."""

    rate: float = 1.0
    """1 / curvature of the objective."""
    length: float = 1.0
    """A step in w."""
    price: float = 1.0
    """A multiplier per value of a constraint."""
    value: float = 1.0
    """A value of a constraint."""


class Counts(NamedTuple):
    """F_m = sum_n weights[m, n] 1[z_n > 0] - bounds[m], z = margin(w, x) of every row."""

    margin: Callable[[Any, Any], Any]
    """(flat w, x) -> score of class 1 minus score of class 0."""
    weights: np.ndarray
    bounds: np.ndarray
    l2: float
    bias: int | None
    """The place in w of a bias that moves all margins alike, if there is one."""


class Case(NamedTuple):
    """A problem, who holds the rows, and how it is trained."""

    problem: Any
    clients: Any
    batch: int
    rounds: int
    search: str = "slsqp"
    """How `reference.py` finds the optimum: "slsqp", "augmented", "rates", or "zero" if it is 0."""
    exact: bool = True
    """Whether the reference is the optimum; if not, it is the best that several starts found."""
    prices: bool = True
    """Whether the multipliers of the optimum are unique, so that prices can be compared."""

    unit: float = 0.0
    """Gaps are relative to the reference or to this number, whichever is larger."""
    units: Units = Units()
    """In which units settings of rivals are searched."""
    counts: Counts | None = None
    """The limits on rates in terms of predictions, for the search of a reference."""


class Entry(NamedTuple):
    """One row of the list of problems."""

    build: Callable[[int], Case]
    """seed -> the case; the seed chooses the start of networks and who holds which rows."""
    family: str
    large: bool
    """Takes minutes, and is run only if asked for."""
    same_as: str
    """The case that has the same optimum, if its reference is used."""

    @property
    def feasible(self) -> bool:
        """Whether the limits can be kept together."""
        return self.family != "infeasible"


CASES: dict[str, Entry] = {}
"""All problems by name. The optimum of a problem does not depend on the seed."""


def case(
    family: str, *, large: bool = False, same_as: str = ""
) -> Callable[[Callable[[int], Case]], Any]:
    """Add a function of the seed to the list, under its own name."""

    def add(build: Callable[[int], Case]) -> Callable[[int], Case]:
        CASES[build.__name__] = Entry(build, family, large, same_as)
        return build

    return add


@functools.cache
def dataset(name: str, rows: int = 0) -> Any:
    """A named data set; with `rows`, that many of its training rows, always the same."""
    data = fedssca.load(name, directory=folder_of(name))
    if not rows:
        return data
    kept = np.sort(np.random.default_rng(0).permutation(len(data.train["y"]))[:rows])
    return dataclasses.replace(data, train={k: v[kept] for k, v in data.train.items()})


def folder_of(name: str) -> Path | None:
    """The folder of a named data set: that of the data sets, or a folder inside it."""
    root = cache_folder()
    if name in ("digits", "breast-cancer") or not root.is_dir():
        return None
    below = sorted(p for p in root.glob("*") if p.is_dir())
    return next((p for p in (root, *below) if locate(name, p)), None)


def file_of(name: str) -> Path:
    """A file in the folder of the data sets or in a folder inside it."""
    found = next(cache_folder().rglob(name), None) if cache_folder().is_dir() else None
    if found is None:
        raise fedssca.UserError(f"{name} is not below {cache_folder()}: set FEDSSCA_DATA")
    return found


def divide(columns: Mapping[str, np.ndarray], clients: int) -> Any:
    """Rows at random among clients, always in the same way."""
    return fedssca.by_sample(columns, clients, "iid", seed=0)


def dense(sizes: tuple[int, ...], seed: int) -> tuple[Any, Callable[[Any, Any], Any]]:
    """A ReLU network with biases, and its first parameters; a linear model starts at 0."""
    rng = np.random.default_rng(seed)
    hidden = len(sizes) > 2
    params = [
        (
            (rng.normal(size=(a, b)) * np.sqrt(2 / a) * hidden).astype(np.float32),
            np.zeros(b, np.float32),
        )
        for a, b in itertools.pairwise(sizes)
    ]

    def apply(params: Any, x: Any) -> Any:
        for k, (w, b) in enumerate(params):
            x = x @ w + b
            x = jax.nn.relu(x) if k < len(params) - 1 else x
        return x

    return params, apply
