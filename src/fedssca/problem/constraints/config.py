"""A constraint from its table in a run's TOML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedssca.errors import UserError, nearest
from fedssca.problem.constraint_kinds import KINDS, POSITIVE, SHARPNESS, KindName, takes
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

MAKERS: dict[KindName, Callable[..., list[Constraint]]] = {
    "loss": loss_at_most,
    "fnr": false_negative_rate_at_most,
    "fpr": false_positive_rate_at_most,
    "recall": recall_at_least,
    "precision": precision_at_least,
    "parity": parity_gap_at_most,
    "opportunity": opportunity_gap_at_most,
    "client_loss": client_loss_at_most,
    "client_loss_gap": client_loss_gap_at_most,
}


def from_config(
    kind: KindName,
    limit: float,
    options: Mapping[str, Any],
    train: Mapping[str, np.ndarray],
    classes: int,
    client_sizes: tuple[int, ...] | None,
) -> list[Constraint]:
    """The constraints of one [[problem.constraint]].

    `options` are its keys beside kind and limit (positive, column, sharpness), `train` the training
    columns. `client_sizes` is None if the clients hold columns.
    """
    if kind not in KINDS:
        raise UserError(f"constraint kind = {kind!r} is unknown: {nearest(kind, KINDS)}")
    given = {name: value for name, value in options.items() if value not in (None, "")}
    allowed = KINDS[kind].options
    if unknown := sorted(set(given) - set(allowed)):
        raise UserError(f"constraint {kind!r} has no key {unknown[0]!r}: it takes {takes(kind)}")
    _check_numbers(
        kind, given.get("positive", POSITIVE), given.get("sharpness", SHARPNESS), classes
    )
    if "column" in allowed:
        given["groups"] = _groups(kind, given.get("column"), train)
    if KINDS[kind].labels:
        given["labels"] = train["y"]
    if KINDS[kind].per_client:
        if client_sizes is None:
            raise UserError(
                f"constraint {kind!r} needs clients that hold rows of their own, but here they "
                'hold columns: use data.split = "sample", or the constraint "loss"'
            )
        given["sizes"] = client_sizes
    return MAKERS[kind](limit, **given)


def _check_numbers(kind: str, positive: Any, sharpness: Any, classes: int) -> None:
    if type(positive) is not int or positive not in range(classes):
        raise UserError(
            f"constraint {kind!r}: positive = {positive!r} is not a class: "
            f"it must be a whole number from 0 to {classes - 1}"
        )
    if isinstance(sharpness, bool) or not isinstance(sharpness, int | float):
        raise UserError(f"constraint {kind!r}: sharpness = {sharpness!r}: it must be a number")


def _groups(kind: str, column: Any, train: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of the column whose groups are compared."""
    present = ", ".join(sorted(set(train) - {"x", "y"})) or "none"
    if not column:
        known = "" if present == "none" else f"; the data's are: {present}"
        raise UserError(f"constraint {kind!r} needs column = <name>{known}")
    if column not in train or column in ("x", "y"):
        raise UserError(f"constraint {kind!r}: there is no column {column!r}; known: {present}")
    return train[column]
