"""Tables in files: the columns of text files and of Parquet files, and the arrays of NPZ files."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data.encode.cells import Array
from fedssca.data.lines import Reading, number_of, read_lines
from fedssca.errors import UserError
from fedssca.system import pip_install

__all__ = [
    "PARQUET",
    "Reading",
    "Table",
    "column_of",
    "is_table",
    "is_text_table",
    "number_of",
    "read_arrays",
    "read_csv",
    "read_parquet",
    "read_table",
    "table_name",
    "text_column",
    "write_csv",
]

Table = dict[str, Array]
"""Columns by name: float64 (NaN if missing) or text ("" if missing)."""
PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv", ".txt", ".tab", ".data", ".dat", ".test")
_BAD_NPZ = (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError,
            zipfile.BadZipFile, zlib.error)  # fmt: skip


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name: text, perhaps zipped, or Parquet."""
    return is_text_table(path) or _plain(path).suffix.lower() in PARQUET


def is_text_table(path: Path) -> bool:
    """Whether a file is a table of text by its name, perhaps zipped."""
    return _plain(path).suffix.lower() in TEXT


def table_name(path: Path) -> str:
    """The name of a file without its ending: "rows" for rows.csv.gz."""
    return _plain(path).stem


def read_table(path: Path, reading: Reading | None = None) -> Table:
    """Return the columns of a table: float64 if all cells are numbers or missing, else text."""
    if not path.is_file():
        raise UserError(f"{path} is not there; name a .csv or .parquet file")
    if not is_table(path):
        raise UserError(f"{path} ends in {path.suffix!r}; it should be .csv, .csv.gz or .parquet")
    if path.suffix.lower() in PARQUET:
        return _parquet_columns(path, reading or Reading())
    return read_csv(path, reading)


def read_csv(path: Path, reading: Reading | None = None) -> Table:
    """Return the columns of a text file; the character between its cells is found out."""
    reading = reading or Reading()
    found = read_lines(path, reading)
    if (numbers := _numbers(path, found.separator, found.first, len(found.header))) is not None:
        table = dict(zip(found.header, numbers, strict=True))
        return {name: _marked(cells, reading) for name, cells in table.items()}
    columns = zip(*found.rows(), strict=True)
    comma = found.separator != ","
    return {
        name: text_column(cells, reading, comma)
        for name, cells in zip(found.header, columns, strict=True)
    }


def write_csv(path: Path, table: Mapping[str, Array]) -> None:
    """Write columns as CSV; numbers keep all their digits, and missing cells are empty."""
    columns = [["" if v != v else v for v in cells.tolist()] for cells in table.values()]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*columns, strict=True))


def _plain(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def _numbers(path: Path, separator: str, first: int, width: int) -> Array | None:
    """Read a file that holds numbers only, which is fast; None if it holds anything else."""
    try:
        table = np.loadtxt(
            path,
            delimiter=separator,
            skiprows=first,
            quotechar='"',
            ndmin=2,
            comments=None,
            encoding="utf-8",
        )
    except ValueError:
        return None
    return np.ascontiguousarray(table.T) if table.shape[1] == width else None


def _marked(numbers: Array, reading: Reading) -> Array:
    """The numbers with NaN in place of those that mark missing cells."""
    marks = [mark for mark in map(number_of, reading.missing) if mark is not None]
    return np.where(np.isin(numbers, marks), np.nan, numbers) if marks else numbers


def text_column(cells: Sequence[str], reading: Reading, comma: bool = False) -> Array:
    """Return numbers if all cells that are not missing are numbers, else text.

    With `comma`, numbers may have a decimal comma, if none of the column has a decimal point.
    """
    markers = reading.markers
    text = np.array(["" if (own := cell.strip()) in markers else own for cell in cells])
    filled = np.where(text == "", "nan", text)
    comma = comma and not (np.char.find(filled, ".") >= 0).any()
    for attempt in (filled, np.char.replace(filled, ",", ".")) if comma else (filled,):
        try:
            return _marked(attempt.astype(np.float64), reading)
        except ValueError:
            continue
    return text


def column_of(name: str, values: Sequence[Any], reading: Reading, where: str) -> Array:
    """Return a column of a database or Parquet file; None is a missing cell."""
    there = [value for value in values if value is not None]
    if there and all(isinstance(v, str) for v in there):
        markers = reading.markers
        stripped = ("" if v is None else v.strip() for v in values)
        return np.array(["" if cell in markers else cell for cell in stripped], dtype=str)
    if there and all(isinstance(v, bool) for v in there):
        return np.array(["" if v is None else str(v).lower() for v in values], dtype=str)
    if there and all(isinstance(v, date) for v in there):
        return np.array(["" if v is None else v.isoformat() for v in values], dtype=str)
    if not all(isinstance(v, bool | int | float | Decimal) for v in there):
        raise UserError(
            f"{where}: column {name!r} holds values such as {there[0]!r}, no number, text or date; "
            "convert it or leave it out"
        )
    numbers = np.array([np.nan if v is None else float(v) for v in values], np.float64)
    return _marked(numbers, reading)


def read_parquet(path: Path) -> Any:
    """Return a Parquet file as a table of pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError(f"{path} needs pyarrow: {pip_install('parquet')}") from None
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{path} cannot be read as Parquet: {error}; write it anew, or use CSV"
        ) from None


def _parquet_columns(path: Path, reading: Reading) -> Table:
    source = read_parquet(path)
    return {
        name: column_of(name, column.to_pylist(), reading, str(path))
        for name, column in zip(source.column_names, source.columns, strict=True)
    }


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
