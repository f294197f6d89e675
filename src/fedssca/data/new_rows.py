"""Rows from a DataFrame, or from a mapping of columns, as raw cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fedssca.data.encode.cells import Array, as_text
from fedssca.data.lines import Reading
from fedssca.data.tables import Table, column_of, text_column
from fedssca.errors import UserError

__all__ = ["as_table"]


def as_table(rows: Any, reading: Reading, where: str = "the rows") -> Table:
    """Return the raw columns of a DataFrame or of a mapping from names to values."""
    names = list(rows.keys()) if hasattr(rows, "keys") else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"{where} are of type {type(rows).__name__}; give a DataFrame with named columns, a "
            "mapping from names to columns, or the path of a file"
        )
    table = {name: _cells(name, rows[name], reading, where) for name in names}
    lengths = {len(cells) for cells in table.values()}
    if len(lengths) > 1:
        raise UserError(f"{where}: the columns have {sorted(lengths)} rows; each needs as many")
    return table


def _cells(name: str, values: Iterable[Any], reading: Reading, where: str) -> Array:
    array = np.asarray(values)
    if array.ndim != 1:
        raise UserError(f"{where}: column {name!r} has the shape {array.shape}; one cell per row")
    if array.dtype.kind == "M":
        days = np.datetime_as_string(array, unit="s")
        return np.where(np.isnat(array), "", days)
    listed = [None if _is_missing(cell) else cell for cell in array.tolist()]
    there = [cell for cell in listed if cell is not None]
    if any(isinstance(cell, str) for cell in there):
        return text_column(["" if c is None else _text(c) for c in listed], reading)
    return column_of(name, listed, reading, where)


def _text(cell: Any) -> str:
    """A cell as a text file would have it."""
    plain = isinstance(cell, int | float) and not isinstance(cell, bool)
    return str(as_text(np.array([cell], float))[0]) if plain else str(cell)


def _is_missing(cell: Any) -> bool:
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float) and cell != cell
