"""Objectives and kinds of constraints by name: which limits make sense, which options they take.

A new kind has its row here and its function in the table of `constraints/config.py`; a test checks
that the two agree. The configuration, the form of the web page and the documentation read this
table. It imports no JAX.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

from fedssca.problem.task_kinds import TaskName

__all__ = [
    "KINDS",
    "LEAST_ROWS",
    "OF_GROUPS",
    "POSITIVE",
    "SHARPNESS",
    "CompareName",
    "Interval",
    "Kind",
    "KindName",
    "ObjectiveName",
    "RareName",
    "kind_of",
    "takes",
]

POSITIVE = 1
"""The class that a rate is about where the classes are 0 and 1, unless the constraint names one."""
LEAST_ROWS = 20
"""The smallest number of training rows of a group, where there are more than two groups."""
SHARPNESS = 16.0
"""How steep the smooth stand-in of a 0/1 count is where the predicted class changes."""

KindName: TypeAlias = Literal[
    "loss",
    "loss_gap",
    "error",
    "fnr",
    "fpr",
    "recall",
    "precision",
    "parity",
    "opportunity",
    "client_loss",
    "client_loss_gap",
    "mae",
    "rmse",
    "mae_gap",
    "beyond",
    "bias",
    "calibration",
]
ObjectiveName: TypeAlias = Literal["loss", "norm", "worst_client", "worst_group"]
CompareName: TypeAlias = Literal["all", "pairs"]
RareName: TypeAlias = Literal["merge", "refuse"]


class Interval(NamedTuple):
    """The finite numbers between two bounds; an infinite upper bound means that there is none."""

    low: float
    high: float = math.inf
    includes_low: bool = True
    includes_high: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float) or not math.isfinite(value):
            return False
        above = value >= self.low if self.includes_low else value > self.low
        return above and (value <= self.high if self.includes_high else value < self.high)

    def words(self, name: str) -> str:
        """The interval as an inequality, e.g. "0 <= limit < 1"."""
        if math.isinf(self.high):
            return f"{name} {'>=' if self.includes_low else '>'} {self.low:g}"
        left, right = ("<=" if end else "<" for end in (self.includes_low, self.includes_high))
        return f"{self.low:g} {left} {name} {right} {self.high:g}"


class Kind(NamedTuple):
    """One kind of constraint."""

    limit: Interval
    """The limits that can be asked for."""
    help: str
    """What the constraint demands, in words."""
    options: tuple[str, ...] = ()
    """Keys that the constraint takes beside `kind` and `limit`."""
    gap: bool = False
    """It compares groups, so that it needs the name of a column."""
    labels: bool = False
    """Its function needs the labels of the training rows."""
    per_client: bool = False
    """It limits a quantity of every single client that holds rows."""
    tasks: tuple[TaskName, ...] = ("classification", "multilabel")
    """The tasks that have such a quantity."""
    certifiable: bool = True
    """The values of single rows are bounded, so that a mean over new rows can be certified."""
    of_all: bool = False
    """Without `positive` it is about all classes or labels together."""


_POSITIVE_LOSS = Interval(0, includes_low=False)
_GAP = Interval(0)
_ERROR_RATE = Interval(0, 1)
_SHARE = Interval(0, 1, includes_low=False, includes_high=True)
OF_GROUPS = ("column", "columns", "bins", "least_rows", "rare", "per_client")
"""The options that say which groups of rows, and of which clients, a constraint is about."""
_RATE = ("positive", "sharpness", *OF_GROUPS)
_COMPARED = (*OF_GROUPS, "compare")
_ALL: tuple[TaskName, ...] = ("classification", "multilabel", "regression")
_NUMBERS: tuple[TaskName, ...] = ("regression",)

KINDS: dict[KindName, Kind] = {
    "loss": Kind(_POSITIVE_LOSS, "The training loss is at most the limit.", OF_GROUPS, tasks=_ALL),
    "loss_gap": Kind(
        _GAP,
        "The losses of groups differ by at most the limit.",
        _COMPARED,
        gap=True,
        tasks=_ALL,
    ),
    "error": Kind(
        _ERROR_RATE,
        "The share of rows that are predicted wrongly is at most the limit.",
        _RATE,
        of_all=True,
    ),
    "fnr": Kind(_ERROR_RATE, "The false-negative rate is at most the limit.", _RATE, labels=True),
    "fpr": Kind(_ERROR_RATE, "The false-positive rate is at most the limit.", _RATE, labels=True),
    "recall": Kind(_SHARE, "The recall is at least the limit.", _RATE, labels=True),
    "precision": Kind(_SHARE, "The precision is at least the limit.", _RATE, labels=True),
    "parity": Kind(
        _GAP,
        "The rates of positive predictions of groups differ by at most the limit.",
        (*_RATE, "compare"),
        gap=True,
    ),
    "opportunity": Kind(
        _GAP,
        "The true-positive rates of groups differ by at most the limit.",
        (*_RATE, "compare"),
        gap=True,
        labels=True,
    ),
    "client_loss": Kind(
        _POSITIVE_LOSS,
        "The loss of every client is at most the limit.",
        per_client=True,
        tasks=_ALL,
    ),
    "client_loss_gap": Kind(
        _GAP,
        "The loss of every client is at most the loss over all rows plus the limit.",
        per_client=True,
        tasks=_ALL,
    ),
    "mae": Kind(
        _POSITIVE_LOSS,
        "Regression: the mean absolute error is at most the limit.",
        OF_GROUPS,
        tasks=_NUMBERS,
        certifiable=False,
    ),
    "rmse": Kind(
        _POSITIVE_LOSS,
        "Regression: the root of the mean squared error is at most the limit.",
        OF_GROUPS,
        tasks=_NUMBERS,
        certifiable=False,
    ),
    "mae_gap": Kind(
        _GAP,
        "Regression: the mean absolute errors of groups differ by at most the limit.",
        _COMPARED,
        gap=True,
        tasks=_NUMBERS,
        certifiable=False,
    ),
    "beyond": Kind(
        _ERROR_RATE,
        "Regression: the share of rows whose error is larger than `bound` is at most the limit.",
        ("bound", "sharpness", *OF_GROUPS),
        tasks=_NUMBERS,
    ),
    "bias": Kind(
        _GAP,
        "Regression: the mean of prediction less target lies within the limit, on both sides.",
        OF_GROUPS,
        tasks=_NUMBERS,
        certifiable=False,
    ),
    "calibration": Kind(
        Interval(0, 1),
        "The mean probability of a class less its share lies within the limit, on both sides.",
        ("positive", *OF_GROUPS),
        certifiable=False,
    ),
}


OWN = Kind(
    Interval(-math.inf),
    "A function of yours, package.module:function, makes the constraint.",
    ("column", "arguments"),
    tasks=_ALL,
)
"""A constraint that a function of the user makes."""


def kind_of(name: str) -> Kind:
    """The kind of this name; a name with a colon is that of a function of the user."""
    return OWN if ":" in name else KINDS[name]  # type: ignore[index]


def takes(kind: str) -> str:
    """The keys that a constraint of this kind takes, as a list in words."""
    return ", ".join(["kind", "limit", *sorted(kind_of(kind).options)])
