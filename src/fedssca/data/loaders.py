"""Clients from data loaders, such as those of PyTorch: one loader for the rows of each client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedssca.data.split import Rows
from fedssca.errors import UserError

__all__ = ["as_columns", "from_loaders", "joined"]


def from_loaders(loaders: Sequence[Iterable[Any]], names: Sequence[str] = ()) -> Rows:
    """The clients whose rows these loaders give, one loader for each client.

    A loader gives batches: pairs (x, y), or tables with these columns and others. They are tensors
    of PyTorch or arrays. Every loader is read once from its beginning to its end; the rows stay in
    memory, and training draws its own batches from them.

    >>> batches = [(np.zeros((4, 3), np.float32), np.array([0, 1, 1, 0]))]
    >>> from_loaders([batches, batches * 2]).sizes
    (4, 8)
    """
    parts = [_rows(number, loader) for number, loader in enumerate(loaders)]
    return joined("loader", parts, names)


def joined(what: str, parts: Sequence[Mapping[str, np.ndarray]], names: Sequence[str]) -> Rows:
    """The clients with these columns; `what` a part is stands in the line that refuses it."""
    if not parts:
        raise UserError(f"there is no {what}; give at least one, one for each client")
    for number, part in enumerate(parts):
        for name, first in parts[0].items():
            if name not in part or part[name].shape[1:] != first.shape[1:]:
                told = part[name].shape[1:] if name in part else "none"
                raise UserError(
                    f"{what} {number}: column {name!r} has rows of shape {told}, {what} 0 of shape "
                    f"{first.shape[1:]}; give all clients the same columns"
                )
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Rows(columns, tuple(len(part["y"]) for part in parts), names=tuple(names))


def _rows(number: int, loader: Iterable[Any]) -> dict[str, np.ndarray]:
    """All rows of a loader, column by column."""
    read: dict[str, list[np.ndarray]] = {}
    for batch in loader:
        for name, column in _columns(number, batch).items():
            read.setdefault(name, []).append(column)
    if not read:
        raise UserError(f"loader {number} gives no batch: every client needs rows")
    for name, pieces in read.items():
        if len(shapes := {piece.shape[1:] for piece in pieces}) > 1:
            told = " and ".join(sorted(map(str, shapes)))
            raise UserError(
                f"loader {number}: column {name!r} has rows of the shapes {told}; give all rows one"
            )
    found = {name: np.concatenate(pieces) for name, pieces in read.items()}
    if len({len(column) for column in found.values()}) > 1:
        raise UserError(f"loader {number}: its columns have different numbers of rows; mend it")
    return found


def _columns(number: int, batch: Any) -> dict[str, np.ndarray]:
    if isinstance(batch, Mapping) and {"x", "y"} <= set(batch):
        given = dict(batch)
    elif isinstance(batch, list | tuple) and len(batch) == 2:
        given = {"x": batch[0], "y": batch[1]}
    else:
        raise UserError(
            f"loader {number} gives {type(batch).__name__}: batches must be pairs (x, y), or "
            'tables with "x" and "y"'
        )
    return as_columns(given)


def as_columns(given: Mapping[Any, Any]) -> dict[str, np.ndarray]:
    """Columns of tensors or arrays as the arrays that clients hold."""
    return {str(name): _array(column) for name, column in given.items()}


def _array(column: Any) -> np.ndarray:
    """A tensor as an array; numbers of 64 bits as 32 bits, in which runs compute."""
    if hasattr(column, "detach"):
        column = column.detach().cpu().numpy()
    array = np.asarray(column)
    narrow: dict[str, type] = {"int64": np.int32, "float64": np.float32}
    return array.astype(narrow[array.dtype.name]) if array.dtype.name in narrow else array
