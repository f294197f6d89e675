"""Tables in files: the columns of CSV and Parquet files, and the arrays of NPZ files."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data.dataset import Array
from fedssca.errors import UserError

__all__ = ["PARQUET", "Table", "read_arrays", "read_csv", "read_parquet", "read_table"]

Table = dict[str, Array]
"""Columns by name, float64 or text."""
PARQUET = (".parquet", ".pq")
_BLANK = "{}: column {!r} is blank in row {}; fill or drop such rows first"
_BAD_NPZ = (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError,
            zipfile.BadZipFile, zlib.error)  # fmt: skip


def read_table(path: Path) -> Table:
    """Return the columns of a CSV or Parquet file: float64 if all cells are numbers, else text."""
    if not path.is_file():
        raise UserError(f"{path} is not there; name a .csv or .parquet file")
    if path.suffix.lower() not in (".csv", *PARQUET):
        raise UserError(f"{path} ends in {path.suffix!r}; it should be .csv or .parquet")
    return read_csv(path) if path.suffix.lower() == ".csv" else _parquet_columns(path)


def read_csv(path: Path, names: Sequence[str] | None = None) -> Table:
    """Return the columns of a CSV file; `names` are given if it has no header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            rows = filter(None, csv.reader(lines, skipinitialspace=True))
            header = [n.strip() for n in names or next(rows, [])]
            if len(set(header)) < len(header):
                raise UserError(
                    f"{path}: the header names a column twice: {', '.join(header)}; rename one"
                )
            first = next(rows, None)
            if names and first and first[0].startswith("|"):  # a comment line of adult.test
                first = next(rows, None)
            if first is None:
                raise UserError(f"{path} is empty; it should hold a header and rows of data")
            table = _numbers(path, len(header)) if names is None else None
            cells = [] if table is not None else [first, *rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{path} cannot be read as CSV text: {error}; save it as UTF-8 CSV"
        ) from None
    if table is not None:
        return dict(zip(header, table, strict=True))
    for i, row in enumerate(cells):
        if len(row) != len(header):
            raise UserError(
                f"{path}, row {i + 1}: {len(row)} cells for {len(header)} columns; mend that row"
            )
    return {n: _column(path, n, c) for n, c in zip(header, zip(*cells, strict=True), strict=True)}


def _numbers(path: Path, width: int) -> Array | None:
    """Read a file that holds numbers only, which is fast; None if it holds anything else."""
    try:
        table = np.loadtxt(
            path, delimiter=",", skiprows=1, quotechar='"', ndmin=2, comments=None, encoding="utf-8"
        )
    except ValueError:
        return None
    return np.ascontiguousarray(table.T) if table.shape[1] == width else None


def _column(path: Path, name: str, cells: Sequence[str]) -> Array:
    """Return numbers if all cells are numbers, else text; a blank cell is an error."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        text = [c.strip() for c in cells]
    if "" in text:
        raise UserError(_BLANK.format(path, name, text.index("") + 1))
    return np.array(text)


def read_parquet(path: Path) -> Any:
    """Return a Parquet file as a table of pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError(f'{path} needs pyarrow: pip install "fedssca[parquet]"') from None
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{path} cannot be read as Parquet: {error}; write it anew, or use CSV"
        ) from None


def _parquet_columns(path: Path) -> Table:
    source = read_parquet(path)
    table: Table = {}
    for name, column in zip(source.column_names, source.columns, strict=True):
        values = column.to_pylist()
        if None in values:
            raise UserError(_BLANK.format(path, name, values.index(None) + 1))
        text = all(isinstance(v, str) for v in values)
        if not text and not all(isinstance(v, bool | int | float) for v in values):
            raise UserError(
                f"{path}: column {name!r} is {column.type}, not number or text; convert or drop it"
            )
        table[name] = np.array(values, dtype=str if text else np.float64)
    return table


def read_arrays(path: Path) -> dict[str, Array]:
    """Return all arrays of an NPZ file."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
            return {name: np.asarray(held[name]) for name in held.files}
    except _BAD_NPZ as error:
        raise UserError(
            f"{path} cannot be read as NPZ of plain arrays: {error}; "
            "write it with numpy.savez(file, x=..., y=...)"
        ) from None
