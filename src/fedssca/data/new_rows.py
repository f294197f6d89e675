"""New rows for a model: from a file, a DataFrame, or a mapping of columns to the same raw cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data.encode.cells import Array, as_text
from fedssca.data.encode.labels import LabelName, label_sources
from fedssca.data.files import JoinedFiles, join_columns, stack_rows
from fedssca.data.ids import id_cells
from fedssca.data.lines import Reading
from fedssca.data.named import credit_columns
from fedssca.data.tables import (
    Table,
    column_of,
    read_arrays,
    read_table,
    text_column,
)
from fedssca.errors import UserError

__all__ = [
    "as_table",
    "cells_as_written",
    "join_new_columns",
    "read_new_rows",
    "stack_new_rows",
]


def read_new_rows(path: Path, reading: Reading, label: LabelName = "") -> Table:
    """Return the raw columns of a file that is like the training file; it may lack the label.

    The file may have a header, also if the training file had none. The arrays of an NPZ file are
    the columns x0, x1, ... and whatever else it holds.
    """
    if path.suffix.lower() == ".npz":
        return _named_arrays(path)
    return _changed(read_table(path, _new(reading, label)), reading)


def stack_new_rows(paths: Sequence[Path], reading: Reading, label: LabelName = "") -> JoinedFiles:
    """Return the rows of several such files below each other."""
    found = stack_rows(paths, _new(reading, label))
    return found._replace(table=_changed(found.table, reading))


def join_new_columns(
    paths: Sequence[Path], id_column: str, reading: Reading, parties: Mapping[str, int]
) -> JoinedFiles:
    """Return the rows whose ids all files have, with the columns of all files and the id.

    `parties` is the file of each column in training; files that are named in another order are put
    in that order, because columns of the same name are told apart by it.
    """
    if not id_column:
        raise UserError(
            "several files with columns are joined by an id, and the run has none (data.id); "
            "give one file with all columns"
        )
    found = join_columns(paths, id_column, reading)
    places: list[set[int]] = [set() for _ in paths]
    for name, file in found.parties.items():
        if name in parties and not name.endswith(f".{file + 1}"):  # that may be another file's
            places[file].add(parties[name])
    order = [place.pop() for place in places if len(place) == 1]
    if sorted(order) == list(range(len(paths))) != order:
        found = join_columns([paths[order.index(n)] for n in range(len(paths))], id_column, reading)
    return found._replace(table={id_column: np.array(found.ids, dtype=str), **found.table})


def cells_as_written(path: Path, column: str, reading: Reading, label: LabelName = "") -> list[str]:
    """Return a column of such a file as the text in it: no digit and no leading zero is lost."""
    return id_cells(path, column, _new(reading, label))


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
    return _changed(table, reading)


def _new(reading: Reading, label: LabelName) -> Reading:
    """The reading of rows that may lack the label."""
    found = label_sources(label, reading.columns) or ()
    return replace(reading, optional=found[0] if len(found) == 1 else "")


def _changed(table: Table, reading: Reading) -> Table:
    """The columns as the ready-made data set has them, where it changes those of its file."""
    return credit_columns(table) if reading.ready_made == "credit" else table


def _named_arrays(path: Path) -> Table:
    arrays = read_arrays(path)
    x = arrays.pop("x", None)
    if x is None or x.ndim < 2 or x.dtype.kind not in "biuf":
        raise UserError(f"{path} needs an array x of numbers with one row per sample")
    flat = x.reshape(len(x), -1).astype(np.float64)
    names = arrays.pop("features", [f"x{j}" for j in range(flat.shape[1])])
    table = {str(name): flat[:, j] for j, name in enumerate(names)}
    others = {name: v for name, v in arrays.items() if v.shape == (len(x),)}
    return table | {n: v if v.dtype.kind == "U" else v.astype(float) for n, v in others.items()}


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
