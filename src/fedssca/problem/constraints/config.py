"""Constraints, and the parts of an objective, from the keys of a run's TOML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedssca.data.classes import Label
from fedssca.errors import UserError, nearest
from fedssca.problem.constraint_kinds import KINDS, OF_GROUPS, KindName, kind_of, takes
from fedssca.problem.constraints.base import (
    Constraint,
    client_loss_at_most,
    client_loss_gap_at_most,
)
from fedssca.problem.constraints.calibrated import calibration_at_most
from fedssca.problem.constraints.cells import checked_bins
from fedssca.problem.constraints.errors import (
    beyond_at_most,
    bias_at_most,
    mae_at_most,
    mae_gap_at_most,
    rmse_at_most,
)
from fedssca.problem.constraints.groups import Groups
from fedssca.problem.constraints.losses import loss_at_most, loss_gap_at_most
from fedssca.problem.constraints.rates import (
    error_at_most,
    false_negative_rate_at_most,
    false_positive_rate_at_most,
    opportunity_gap_at_most,
    parity_gap_at_most,
    precision_at_least,
    recall_at_least,
)
from fedssca.problem.functions import call_own
from fedssca.problem.task_kinds import TaskName

MAKERS: dict[KindName, Callable[..., list[Constraint]]] = {
    "loss": loss_at_most,
    "loss_gap": loss_gap_at_most,
    "error": error_at_most,
    "fnr": false_negative_rate_at_most,
    "fpr": false_positive_rate_at_most,
    "recall": recall_at_least,
    "precision": precision_at_least,
    "parity": parity_gap_at_most,
    "opportunity": opportunity_gap_at_most,
    "client_loss": client_loss_at_most,
    "client_loss_gap": client_loss_gap_at_most,
    "mae": mae_at_most,
    "rmse": rmse_at_most,
    "mae_gap": mae_gap_at_most,
    "beyond": beyond_at_most,
    "bias": bias_at_most,
    "calibration": calibration_at_most,
}


class TrainingRows(NamedTuple):
    """What constraints need to know of the training rows."""

    columns: Mapping[str, np.ndarray]
    """The columns beside x, with the labels 0, 1, ... as "y"; client by client.

    Several labels at once are a table of zeros and ones with a column for each."""
    classes: Sequence[Label]
    """The names of the classes or labels."""
    sizes: Sequence[int] | None = None
    """The numbers of rows of the clients; None if the clients hold columns."""
    positive: int | None = None
    """The class that rates are about, if the data set itself defines one."""
    kinds: Mapping[str, Sequence[str]] = {}
    """The values that the numbers 0, 1, ... in columns of text stand for."""
    clients: Sequence[str] = ()
    """The names of the clients; empty: they have numbers only."""
    task: TaskName = "classification"
    """What the model predicts."""


def from_config(
    kind: str, limit: float, options: Mapping[str, Any], rows: TrainingRows
) -> list[Constraint]:
    """The constraints of one [[problem.constraint]]; `options` are its keys beside kind and limit.

    Options that are None, empty or false count as not given. A kind with a colon is a function of
    the user: make(limit, **arguments), and `column` if that is given.
    """
    if ":" in kind:
        return _own(kind, limit, options)
    if kind not in MAKERS:
        raise UserError(f"constraint kind = {kind!r} is unknown: {nearest(kind, KINDS)}")
    what, known = f"constraint {kind!r}", kind_of(kind)
    if rows.task not in known.tasks:
        there = ", ".join(name for name, each in KINDS.items() if rows.task in each.tasks)
        raise UserError(f"{what}: a {rows.task} has no such limit; it takes {there}")
    given = {name: value for name, value in options.items() if _is_given(value)}
    allowed = known.options
    if unknown := sorted(set(given) - set(allowed)):
        raise UserError(f"{what} has no key {unknown[0]!r}: it takes {takes(kind)}")
    for name in ("sharpness", "bound"):
        _check_number(what, name, given.get(name))
    if "bound" in allowed and "bound" not in given:
        raise UserError(f"{what} needs bound = <size of an error, in the unit of the target>")
    settings = {name: value for name, value in given.items() if name not in OF_GROUPS}
    if "positive" in allowed:
        if "positive" not in given and rows.positive is not None and not known.of_all:
            settings["positive"] = rows.classes[rows.positive]
        settings["classes"] = tuple(rows.classes)
    groups = _groups(what, given, rows, known.gap)
    if groups is not None:
        settings["groups"] = groups
    if known.labels:
        settings["labels"] = rows.columns["y"]
    if known.per_client:
        settings["sizes"] = _sizes(what, rows.sizes, 'the constraint "loss"')
        settings["clients"] = rows.clients
    return MAKERS[kind](limit, **settings)


def _own(kind: str, limit: float, options: Mapping[str, Any]) -> list[Constraint]:
    """The constraints that a function of the user makes."""
    given = dict(options.get("arguments") or {})
    if options.get("column"):
        given["column"] = options["column"]
    made = call_own("problem.constraint kind", kind, limit, **given)
    found = made if isinstance(made, list) else [made]
    for each in found:
        if not isinstance(each, Constraint):
            raise UserError(
                f"problem.constraint kind = {kind!r} returned {type(each).__name__}: it must "
                "return a fedssca Constraint, or a list of them"
            )
    return found


def parts_from_config(objective: str, column: str | None, rows: TrainingRows) -> dict[str, Any]:
    """What `worst_parts` needs to know of the clients or of the groups in `column`."""
    what = f"objective {objective!r}"
    if objective == "worst_client":
        sizes = _sizes(what, rows.sizes, 'the objective "worst_group"')
        return {"sizes": sizes, "titles": rows.clients}
    if objective == "worst_group":
        groups = _column(what, column, rows.columns)
        return {"groups": groups, "column": column, "titles": rows.kinds.get(column or "", ())}
    return {}


def _groups(what: str, given: Mapping[str, Any], rows: TrainingRows, needed: bool) -> Groups | None:
    """The groups that the keys of a constraint name; None: it is about all rows."""
    if "column" in given and "columns" in given:
        raise UserError(f"{what}: give column or columns, not both")
    names = [given["column"]] if "column" in given else list(given.get("columns", ()))
    if needed and not names:
        _column(what, None, rows.columns)
    if len(set(names)) < len(names):
        raise UserError(f"{what}: columns = {names} names a column twice")
    if not names and (extra := sorted(set(given) & {"bins", "compare"})):
        raise UserError(f"{what}: {extra[0]} goes with column = <name>, or columns = [<names>]")
    if not names and not given.get("per_client"):
        if extra := sorted(set(given) & {"least_rows", "rare"}):
            raise UserError(f"{what}: {extra[0]} goes with column, columns or per_client")
        return None
    sizes = None
    if given.get("per_client"):
        sizes = _sizes(what, rows.sizes, "leave per_client out")
    return Groups(
        {name: _column(what, name, rows.columns) for name in names},
        rows.kinds,
        _bins(what, given.get("bins", {}), names),
        given.get("least_rows"),
        given.get("rare", "merge"),
        sizes,
        rows.clients,
    )


def _bins(what: str, bins: Any, names: Sequence[str]) -> dict[str, list[float]]:
    """The bins of each column: a table, or a list where there is one column."""
    if not isinstance(bins, Mapping):
        if len(names) != 1:
            raise UserError(
                f"{what}: bins = {list(bins)} for {len(names)} columns: name the column, such as "
                f"bins = {{{names[0]} = {list(bins)}}}"
            )
        bins = {names[0]: bins}
    return {name: checked_bins(f"{what}: bins of {name!r}", ends) for name, ends in bins.items()}


def _sizes(what: str, sizes: Sequence[int] | None, instead: str) -> Sequence[int]:
    """The numbers of rows of the clients, which must hold rows of their own."""
    if sizes is None:
        raise UserError(
            f"{what} needs clients that hold rows of their own, but here they hold columns: "
            f'use data.split = "sample", or {instead}'
        )
    return sizes


def _is_given(value: Any) -> bool:
    return value is not None and (value is True or isinstance(value, int | float) or bool(value))


def _check_number(what: str, name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{what}: {name} = {value!r}: it must be a number")


def _column(what: str, column: Any, train: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of the column whose groups are meant."""
    present = ", ".join(sorted(set(train) - {"x", "y"})) or "none"
    if not column:
        known = "" if present == "none" else f"; the data's are: {present}"
        raise UserError(f"{what} needs column = <name>{known}")
    if column not in train or column in ("x", "y"):
        raise UserError(f"{what}: there is no column {column!r}; known: {present}")
    return train[column]
