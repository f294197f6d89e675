"""Objectives and kinds of constraints by name: which limits make sense, which options they take.

A new kind has its row here and its function in the table of `constraints/config.py`; a test checks
that the two agree. The configuration, the form of the web page and the documentation read this
table. It imports no JAX.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "KINDS",
    "POSITIVE",
    "SHARPNESS",
    "Interval",
    "Kind",
    "KindName",
    "ObjectiveName",
    "takes",
]

POSITIVE = 1
"""The class that a rate is about, unless the constraint names another."""
SHARPNESS = 4.0
"""How steep the smooth stand-in of a 0/1 count is where the predicted class changes."""

KindName: TypeAlias = Literal[
    "loss",
    "fnr",
    "fpr",
    "recall",
    "precision",
    "parity",
    "opportunity",
    "client_loss",
    "client_loss_gap",
]
ObjectiveName: TypeAlias = Literal["loss", "norm", "worst_client", "worst_group"]


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
    needs: tuple[str, ...] = ()
    """Those of the options that must be given."""
    labels: bool = False
    """Its function needs the labels of the training rows."""
    per_client: bool = False
    """It limits a quantity of every single client that holds rows."""

    @property
    def counts(self) -> bool:
        """Its terms depend on how many rows have which label, or are in which group."""
        return self.labels or "column" in self.options


_POSITIVE_LOSS = Interval(0, includes_low=False)
_GAP = Interval(0)
_ERROR_RATE = Interval(0, 1)
_SHARE = Interval(0, 1, includes_low=False, includes_high=True)
_RATE = ("positive", "sharpness")
_GROUPS = ("column", "positive", "sharpness")

KINDS: dict[KindName, Kind] = {
    "loss": Kind(_POSITIVE_LOSS, "The training loss is at most the limit."),
    "fnr": Kind(_ERROR_RATE, "The false-negative rate is at most the limit.", _RATE, labels=True),
    "fpr": Kind(_ERROR_RATE, "The false-positive rate is at most the limit.", _RATE, labels=True),
    "recall": Kind(_SHARE, "The recall is at least the limit.", _RATE, labels=True),
    "precision": Kind(_SHARE, "The precision is at least the limit.", _RATE, labels=True),
    "parity": Kind(
        _GAP,
        "The rates of positive predictions in two groups differ by at most the limit.",
        _GROUPS,
        ("column",),
    ),
    "opportunity": Kind(
        _GAP,
        "The true-positive rates of two groups differ by at most the limit.",
        _GROUPS,
        ("column",),
        labels=True,
    ),
    "client_loss": Kind(
        _POSITIVE_LOSS, "The loss of every client is at most the limit.", per_client=True
    ),
    "client_loss_gap": Kind(
        _GAP,
        "The loss of every client is at most the loss over all rows plus the limit.",
        per_client=True,
    ),
}


def takes(kind: KindName) -> str:
    """The keys that a constraint of this kind takes, as a list in words."""
    return ", ".join(["kind", "limit", *sorted(KINDS[kind].options)])
