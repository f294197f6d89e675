"""Constraints, and the parts of an objective, from the keys of a run's TOML."""

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
        given["groups"] = _groups(f"constraint {kind!r}", given.get("column"), train)
    if KINDS[kind].labels:
        given["labels"] = train["y"]
    if KINDS[kind].per_client:
        given["sizes"] = _sizes(f"constraint {kind!r}", client_sizes, 'the constraint "loss"')
    return MAKERS[kind](limit, **given)


def parts_from_config(
    objective: str,
    column: str | None,
    train: Mapping[str, np.ndarray],
    client_sizes: tuple[int, ...] | None,
) -> dict[str, Any]:
    """What `worst_parts` needs to know of the clients or of the groups in `column`."""
    what = f"objective {objective!r}"
    if objective == "worst_client":
        return {"sizes": _sizes(what, client_sizes, 'the objective "worst_group"')}
    if objective == "worst_group":
        return {"groups": _groups(what, column, train), "column": column}
    return {}


def _sizes(what: str, sizes: tuple[int, ...] | None, instead: str) -> tuple[int, ...]:
    """The numbers of rows of the clients, which must hold rows of their own."""
    if sizes is None:
        raise UserError(
            f"{what} needs clients that hold rows of their own, but here they hold columns: "
            f'use data.split = "sample", or {instead}'
        )
    return sizes


def _check_numbers(kind: str, positive: Any, sharpness: Any, classes: int) -> None:
    if type(positive) is not int or positive not in range(classes):
        raise UserError(
            f"constraint {kind!r}: positive = {positive!r} is not a class: "
            f"it must be a whole number from 0 to {classes - 1}"
        )
    if isinstance(sharpness, bool) or not isinstance(sharpness, int | float):
        raise UserError(f"constraint {kind!r}: sharpness = {sharpness!r}: it must be a number")


def _groups(what: str, column: Any, train: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of the column whose groups are compared."""
    present = ", ".join(sorted(set(train) - {"x", "y"})) or "none"
    if not column:
        known = "" if present == "none" else f"; the data's are: {present}"
        raise UserError(f"{what} needs column = <name>{known}")
    if column not in train or column in ("x", "y"):
        raise UserError(f"{what}: there is no column {column!r}; known: {present}")
    return train[column]
