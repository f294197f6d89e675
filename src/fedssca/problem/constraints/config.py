"""A constraint from its table in a run's TOML."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedssca.errors import UserError
from fedssca.problem.constraints.base import (
    Constraint,
    client_loss_at_most,
    client_loss_gap_at_most,
    loss_at_most,
)
from fedssca.problem.constraints.rates import (
    false_negative_rate_at_most,
    false_positive_rate_at_most,
    opportunity_gap_at_most,
    parity_gap_at_most,
    precision_at_least,
    recall_at_least,
)


def from_config(
    kind: str,
    limit: float,
    options: Mapping[str, Any],
    train: Mapping[str, np.ndarray],
    classes: int,
    client_sizes: tuple[int, ...] | None,
) -> list[Constraint]:
    """One [[problem.constraint]]: `options` are its other keys (positive, column, sharpness).

    `client_sizes` is None where clients hold columns.
    """
    labels, given = train["y"], {k: v for k, v in options.items() if v not in (None, "")}
    rate, group = {"positive", "sharpness"}, {"positive", "sharpness", "column"}
    sizes = client_sizes or ()
    table: dict[str, tuple[set[str], Callable[..., list[Constraint]]]] = {
        "loss": (set(), lambda: loss_at_most(limit)),
        "fnr": (rate, lambda **o: false_negative_rate_at_most(limit, labels, **o)),
        "fpr": (rate, lambda **o: false_positive_rate_at_most(limit, labels, **o)),
        "recall": (rate, lambda **o: recall_at_least(limit, labels, **o)),
        "precision": (rate, lambda **o: precision_at_least(limit, labels, **o)),
        "parity": (group, lambda **o: parity_gap_at_most(limit, **o)),
        "opportunity": (group, lambda **o: opportunity_gap_at_most(limit, labels=labels, **o)),
        "client_loss": (set(), lambda: client_loss_at_most(limit, sizes)),
        "client_loss_gap": (set(), lambda: client_loss_gap_at_most(limit, sizes)),
    }
    if kind not in table:
        near = "".join(f"did you mean {k!r}? " for k in difflib.get_close_matches(kind, table, 1))
        raise UserError(f"constraint kind = {kind!r} is unknown: {near}Known: {', '.join(table)}")
    allowed, make = table[kind]
    if unknown := sorted(set(given) - allowed):
        keys = ", ".join(["kind", "limit", *sorted(allowed)])
        raise UserError(f"constraint {kind!r} has no key {unknown[0]!r}: it takes {keys}")
    if kind.startswith("client") and client_sizes is None:
        raise UserError(
            f"constraint {kind!r} needs clients that hold rows of their own, but here they hold "
            'columns: use data.split = "sample", or the constraint "loss"'
        )
    positive, sharpness = given.get("positive", 1), given.get("sharpness", 1.0)
    if type(positive) is not int or positive not in range(classes):
        raise UserError(
            f"constraint {kind!r}: positive = {positive!r} is not a class: "
            f"it must be a whole number from 0 to {classes - 1}"
        )
    if isinstance(sharpness, bool) or not isinstance(sharpness, int | float):
        raise UserError(f"constraint {kind!r}: sharpness = {sharpness!r}: it must be a number")
    if allowed is group:
        given["groups"] = _groups(kind, given.setdefault("column", ""), train)
    return make(**given)


def _groups(kind: str, column: Any, train: Mapping[str, np.ndarray]) -> np.ndarray:
    present = ", ".join(sorted(set(train) - {"x", "y"})) or "none"
    if not column:
        known = "" if present == "none" else f"; the data's are: {present}"
        raise UserError(f"constraint {kind!r} needs column = <name>{known}")
    if column not in train or column in ("x", "y"):
        raise UserError(f"constraint {kind!r}: there is no column {column!r}; known: {present}")
    return train[column]
