"""Constraints of an estimator: mappings, constraints, functions of the columns, and lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedssca.data.split import Rows
from fedssca.errors import UserError
from fedssca.problem.constraints import Constraint, TrainingRows, from_config, target_class

__all__ = ["group_columns", "limits_of"]

Array = np.ndarray


def limits_of(constraints: Any, rows: Rows, known: TrainingRows) -> list[Constraint]:
    """Return the constraints from any nesting of lists, mappings and functions of the columns."""
    columns = {**rows.columns, "y": known.columns["y"], "client": rows.owners()}
    columns["classes"] = np.array(known.classes)
    made = _flat(constraints, columns, known)
    for constraint in made:
        if constraint.assumed:
            target_class(f"constraint {constraint.name!r}", None, known.classes)
    return made


def group_columns(constraints: Any) -> list[str]:
    """Return the columns that the mappings among the constraints name.

    >>> group_columns([{"kind": "parity", "column": "sex"}, [{"columns": ["sex", "town"]}]])
    ['sex', 'town']
    """
    found: list[Any] = []
    if isinstance(constraints, Mapping):
        several = constraints.get("columns")
        found = [constraints.get("column"), *(several if isinstance(several, list | tuple) else ())]
    elif isinstance(constraints, list | tuple) and not isinstance(constraints, Constraint):
        found = [name for each in constraints for name in group_columns(each)]
    return [name for name in dict.fromkeys(found) if isinstance(name, str)]


def _flat(constraints: Any, columns: dict[str, Array], rows: TrainingRows) -> list[Constraint]:
    if isinstance(constraints, Constraint):
        return [constraints]
    if isinstance(constraints, Mapping):
        settings = dict(constraints)
        if lacking := [name for name in ("kind", "limit") if name not in settings]:
            raise UserError(f"constraint {settings} has no {lacking[0]}: give kind and limit")
        return from_config(settings.pop("kind"), settings.pop("limit"), settings, rows)
    if callable(constraints):
        return _flat(constraints(columns), columns, rows)
    if isinstance(constraints, Iterable) and not isinstance(constraints, str):
        return [each for part in constraints for each in _flat(part, columns, rows)]
    raise UserError(
        f"constraints holds {constraints!r}: give constraints such as loss_at_most(0.2), mappings "
        'such as {"kind": "loss", "limit": 0.2}, lists of them, or functions of the training '
        "columns"
    )
