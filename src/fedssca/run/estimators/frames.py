"""DataFrames as input of an estimator: columns by name, text, and missing cells."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedssca.data.encode import (
    Encoder,
    EncodingRules,
    codes,
    fit_encoder,
    is_text,
    named_cells,
    summarise,
)
from fedssca.data.encode.misread import misread_numbers
from fedssca.data.lines import Reading
from fedssca.data.new_rows import as_table
from fedssca.data.tables import Table
from fedssca.errors import UserError, nearest

__all__ = [
    "columns_beside",
    "encoder_of",
    "inputs_of",
    "is_frame",
    "raw_table",
    "same_columns",
    "wants_encoder",
    "without",
]


def is_frame(x: Any) -> bool:
    """Whether x is a table with named columns, such as a DataFrame of pandas or polars."""
    return hasattr(x, "columns") and hasattr(x, "shape") and not isinstance(x, np.ndarray)


def wants_encoder(encode: bool | str, given: Sequence[Any]) -> bool:
    """Whether the rows are encoded: with "auto", if a DataFrame holds more than numbers."""
    if isinstance(encode, bool):
        return encode
    if encode != "auto":
        raise UserError(f'encode = {encode!r}: it must be "auto", True or False')
    return any(is_frame(x) and not _only_numbers(x) for x in given)


def without(x: Any, drop: Sequence[str]) -> Any:
    """The table without some columns, which it may lack."""
    if not is_frame(x) or not set(drop) & set(x.columns):
        return x
    return x[[name for name in x.columns if name not in drop]]


def columns_beside(x: Any, names: Sequence[str], of: str) -> Table:
    """These columns of a DataFrame as limits need them, unscaled; none of an array."""
    if not is_frame(x) or not names:
        return {}
    known = [str(name) for name in x.columns]
    if lacking := [name for name in names if name not in known]:
        raise UserError(f"{of}X has no column {lacking[0]!r}; {nearest(lacking[0], known)}")
    table = raw_table(x[list(dict.fromkeys(names))], of)
    return {n: named_cells(v) if is_text(v) else codes(v, None) for n, v in table.items()}


def same_columns(given: Sequence[Any], drop: Sequence[str], keep: Sequence[str]) -> list[Any]:
    """The tables of all clients with the columns that the first has, in its order.

    The columns in `drop` are left out; those and the columns in `keep` must be there.
    """
    for names, word in ((drop, "drop"), (keep, "keep")):
        for name in names:
            if not all(is_frame(x) for x in given):
                raise UserError(f"{word} = {list(names)} needs names of columns: give a DataFrame")
            if name not in (known := [str(each) for each in given[0].columns]):
                raise UserError(f"{word}: there is no column {name!r}; {nearest(name, known)}")
    left = [without(x, drop) for x in given]
    frames = [x for x in left if is_frame(x)]
    if not frames or len(frames) < len(left):
        return left
    first = list(left[0].columns)
    if twice := sorted({str(name) for name in first if first.count(name) > 1}):
        raise UserError(f"X names the column {twice[0]!r} twice: rename one")
    for i, x in enumerate(left[1:], start=1):
        if odd := set(map(str, x.columns)) ^ set(map(str, first)):
            name = sorted(odd)[0]
            holder, other = (i, 0) if name in set(map(str, x.columns)) else (0, i)
            raise UserError(
                f"client {holder} has a column {name!r}, and client {other} has not: all need the "
                "same columns"
            )
    return [left[0], *(x[first] for x in left[1:])]


def raw_table(x: Any, of: str, names: Iterable[str] | None = None) -> Table:
    """The raw columns of a DataFrame, or of an array whose columns have these names."""
    if is_frame(x):
        columns: Mapping[str, Any] = {str(name): np.asarray(x[name]) for name in x.columns}
    else:
        cells = np.asarray(x, dtype=object)
        if cells.ndim != 2 or not cells.shape[1]:
            raise UserError(f"{of}X has shape {cells.shape}: (rows, features) is needed")
        called = names if names is not None else [f"x{j}" for j in range(cells.shape[1])]
        columns = dict(zip(called, cells.T, strict=True))
    return as_table(columns, Reading(), f"{of}X")


def encoder_of(tables: Sequence[Table], keep: Sequence[str]) -> Encoder:
    """The encoder of the rows of all clients, from counts and sums of each client."""
    rules = EncodingRules()
    for line in (line for table in tables for line in misread_numbers(table, keep)):
        warnings.warn(f"it becomes categories: {line}", UserWarning, stacklevel=5)
    summaries = {
        name: [summarise(name, table[name], None, rules) for table in tables] for name in tables[0]
    }
    return fit_encoder(summaries, rules, use=keep)


def inputs_of(encoder: Encoder, table: Table, of: str) -> np.ndarray:
    """The inputs of the network for raw rows; a UserError names all columns that are missing."""
    lacking = [column.name for column in encoder.columns if column.name not in table]
    if lacking:
        near = f"; {nearest(lacking[0], table)}" if len(lacking) == 1 else ""
        shown = ", ".join(map(repr, lacking[:10])) + (", ..." if len(lacking) > 10 else "")
        raise UserError(
            f"{of}X lacks the column{'s' if len(lacking) > 1 else ''} {shown}, which the model was "
            f"trained with{near}"
        )
    return np.asarray(encoder.encode(table, f"{of}X"))


def _only_numbers(frame: Any) -> bool:
    """Whether all columns are numbers or booleans, without missing cells."""
    columns = [np.asarray(frame[name]) for name in frame.columns]
    return all(
        cells.dtype.kind in "iub" or (cells.dtype.kind == "f" and not np.isnan(cells).any())
        for cells in columns
    )
