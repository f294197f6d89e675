"""Ids of rows: text in one spelling for all parties, and files whose rows are put in a new order.

An id is text: Unicode in NFC, without blanks around it. Whole numbers are their decimal digits, so
7 in a column of integers and "7" in a CSV file are the same id; "007" is another id. Blank ids,
repeated ids and ids that look like a number that a program has rewritten (7.0, 1.2e+11, nan) are
errors that name the row: otherwise two parties would not find a row that both have.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedssca.data.dataset import Array
from fedssca.data.lines import Reading, read_lines
from fedssca.data.tables import PARQUET, is_table, read_arrays, read_parquet
from fedssca.errors import UserError

__all__ = [
    "IdForm",
    "TableWithIds",
    "as_cells",
    "canonical",
    "form_of",
    "id_cells",
    "misfit",
    "open_with_ids",
]

_REWRITTEN = re.compile(r"-?[0-9]+\.0*|-?[0-9](\.[0-9]+)?[eE]\+[0-9]+|nan|NaN")
KINDS = {
    "whole": "whole numbers such as 7",
    "padded": "digits with zeros in front such as 007",
    "text": "text such as p7",
    "mixed": "partly numbers, partly text",
}


class IdForm(NamedTuple):
    """The form of a party's ids, which two parties compare before they look for common ids."""

    kind: str
    """ "whole": all are digits, none begins with 0; "padded": all are digits, some begin with 0;
    "mixed": some are digits only; "text": none is."""
    width: int
    """The length of the ids if all have the same length, else 0."""


def canonical(cells: Iterable[str], where: str, tell: bool = True) -> list[str]:
    """Return the ids in canonical spelling; an error names the row, and with `tell` also the id."""
    seen: dict[str, int] = {}
    for row, cell in enumerate(cells, 1):
        name = unicodedata.normalize("NFC", cell).strip()
        shown = f" {name!r}" if tell else ""
        if not name:
            raise UserError(f"{where}, row {row}: the id is blank; every row needs one")
        if _REWRITTEN.fullmatch(name):
            raise UserError(
                f"{where}, row {row}: the id{shown} is a decimal number; ids are text or whole "
                "numbers, so save the column as one of these"
            )
        if not _encodes(name):
            raise UserError(f"{where}, row {row}: the id{shown} is no valid Unicode text")
        if name in seen:
            raise UserError(
                f"{where}: the id{shown} of row {seen[name]} occurs again in row {row}; ids must "
                "be unique"
            )
        seen[name] = row
    return list(seen)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def form_of(ids: Sequence[str]) -> IdForm:
    """Return the form of canonical ids."""
    digits = [name.isascii() and name.isdigit() for name in ids]
    widths = {len(name) for name in ids}
    width = widths.pop() if len(widths) == 1 else 0
    if not all(digits):
        return IdForm("mixed" if any(digits) else "text", width)
    padded = any(name[0] == "0" and len(name) > 1 for name in ids)
    return IdForm("padded" if padded else "whole", width)


def misfit(forms: Mapping[str, IdForm]) -> str | None:
    """Return an error line about the first two parties whose ids differ in form, or None."""
    pairs = [(a, b) for a in forms for b in forms if a < b and forms[a].kind != forms[b].kind]
    for one, two in pairs:
        kinds = {forms[one].kind, forms[two].kind}
        same_width = forms[one].width == forms[two].width != 0
        if "mixed" in kinds or (kinds == {"whole", "padded"} and same_width):
            continue
        return (
            f"the ids of {one} are {KINDS[forms[one].kind]}, those of {two} "
            f"{KINDS[forms[two].kind]}; write them alike first"
        )
    return None


def as_cells(values: Any, where: str) -> list[str]:
    """Return a column of ids of any type as text, not yet in canonical spelling."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iufUS":
        raise UserError(f"{where}: ids are {array.dtype} of shape {array.shape}; one text per row")
    if array.dtype.kind != "S":
        return [str(value) for value in array.tolist()]
    return [_decoded(value, where, row) for row, value in enumerate(array.tolist(), 1)]


def _decoded(value: bytes, where: str, row: int) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UserError(f"{where}, row {row}: the id is bytes that are no UTF-8 text") from None


class TableWithIds(Protocol):
    """A file whose rows have ids."""

    parts: dict[str, list[str]]
    """The canonical ids of "rows", and of "test" if the file has separate test rows."""

    def write(self, out: Path, rows: Mapping[str, Array]) -> None:
        """Write these rows of each part, in this order, and everything else unchanged."""


def open_with_ids(path: Path, column: str) -> TableWithIds:
    """Open a CSV, Parquet or NPZ file whose ids are in `column`."""
    if not path.is_file():
        raise UserError(f"{path} is not there; name a .csv, .npz or .parquet file")
    kind = path.suffix.lower()
    if kind in PARQUET:
        return _Parquet(path, column)
    if kind == ".npz":
        return _Npz(path, column)
    if is_table(path):
        return _Csv(path, column)
    raise UserError(f"{path} ends in {path.suffix!r}; it should be .csv, .npz or .parquet")


def id_cells(path: Path, column: str, reading: Reading | None = None) -> list[str]:
    """Return one column of a text or Parquet file as the text in the file: no digit is lost."""
    if path.suffix.lower() in PARQUET:
        return _parquet_cells(read_parquet(path), path, column)
    found = read_lines(path, reading or Reading())
    return _csv_cells(found.header, found.rows(), path, column)


class _Csv:
    def __init__(self, path: Path, column: str) -> None:
        found = read_lines(path, Reading())
        self._header, self._rows = found.header, found.rows()
        cells = _csv_cells(self._header, self._rows, path, column)
        self.parts = {"rows": canonical(cells, str(path))}

    def write(self, out: Path, rows: Mapping[str, Array]) -> None:
        with open(out, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self._header)
            writer.writerows(self._rows[row] for row in rows["rows"].tolist())


class _Parquet:
    def __init__(self, path: Path, column: str) -> None:
        self._table = read_parquet(path)
        self.parts = {"rows": canonical(_parquet_cells(self._table, path, column), str(path))}

    def write(self, out: Path, rows: Mapping[str, Array]) -> None:
        import pyarrow.parquet as pq

        pq.write_table(self._table.take(rows["rows"]), out)


class _Npz:
    def __init__(self, path: Path, column: str) -> None:
        self._raw = read_arrays(path)
        if column not in self._raw:
            raise _lacks(path, "array", column, self._raw)
        self.parts = {}
        for part, end in (("rows", ""), ("test", "_test")):
            if column + end in self._raw:
                where = f"{path}, {column + end}"
                self.parts[part] = canonical(as_cells(self._raw[column + end], where), where)
        odd = [n for n, v in self._raw.items() if self._ordered(n, v) and not self._fits(n, v)]
        if odd:
            raise UserError(f"{path}: the array {odd[0]!r} has not one row for each id")

    def _part(self, name: str) -> str:
        return "test" if name.endswith("_test") else "rows"

    def _ordered(self, name: str, values: Array) -> bool:
        return values.ndim > 0 and name != "features"

    def _fits(self, name: str, values: Array) -> bool:
        return len(values) == len(self.parts.get(self._part(name), ()))

    def write(self, out: Path, rows: Mapping[str, Array]) -> None:
        arrays: dict[str, Any] = {
            name: values[rows[self._part(name)]] if self._ordered(name, values) else values
            for name, values in self._raw.items()
        }
        with open(out, "wb") as file:
            np.savez(file, **arrays)


def _csv_cells(header: list[str], rows: list[list[str]], path: Path, column: str) -> list[str]:
    if header.count(column) != 1:
        raise _lacks(path, "column", column, header)
    place = header.index(column)
    return [row[place] for row in rows]


def _parquet_cells(table: Any, path: Path, column: str) -> list[str]:
    if column not in table.column_names:
        raise _lacks(path, "column", column, table.column_names)
    cells = []
    for row, value in enumerate(table[column].to_pylist(), 1):
        if isinstance(value, bool | list | dict):
            raise UserError(f"{path}, row {row}: the id is {value!r}; ids are text or numbers")
        text = _decoded(value, str(path), row) if isinstance(value, bytes) else str(value)
        cells.append("" if value is None else text)
    return cells


def _lacks(path: Path, what: str, column: str, there: Iterable[str]) -> UserError:
    return UserError(f"{path} has no {what} {column!r} for the ids; it has {', '.join(there)}")
