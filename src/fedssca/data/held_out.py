"""The rows that a run sets aside for testing, as they stand in its files."""

from __future__ import annotations

from itertools import compress
from pathlib import Path

import numpy as np

from fedssca.data.encode import as_text, is_text
from fedssca.data.files import expanded
from fedssca.data.lines import Reading, read_lines
from fedssca.data.load import DataSource
from fedssca.data.raw import RawData
from fedssca.data.tables import is_text_table, text_column
from fedssca.errors import UserError

__all__ = ["held_out_rows"]


def held_out_rows(source: DataSource) -> dict[str, list[str]]:
    """Return the columns of the raw rows that are set aside, as text by name.

    Cells of text files are those of the file, but decimal commas become points; other tables lack
    the columns that are dropped.
    """
    if source.test_path:
        raise UserError(f"the test rows are those of data.test_path = {source.test_path!r}")
    raw = source.read()
    if not isinstance(raw, RawData):
        raise UserError(f"{raw.name} holds arrays, no table; its test rows are not in a file")
    held = ~raw.train
    named = [source.path] if isinstance(source.path, str) else list(source.path or ())
    paths = expanded(named)
    if paths and all(map(is_text_table, paths)) and (len(paths) == 1 or not raw.parties):
        return _as_written(paths, source.reading, held)
    columns = raw.table | raw.label_columns
    return {name: as_text(cells[held]).tolist() for name, cells in columns.items()}


def _as_written(paths: list[Path], reading: Reading, held: np.ndarray) -> dict[str, list[str]]:
    """The cells of these rows of text files, with the columns of the first file."""
    found: dict[str, list[str]] = {}
    begin = 0
    for path in paths:
        lines = read_lines(path, reading)
        rows = lines.rows()
        own = held[begin : begin + len(rows)]
        begin += len(rows)
        columns = dict(zip(lines.header, zip(*rows, strict=True), strict=True))
        for name in found or lines.header:
            cells = [cell.strip() for cell in columns[name]]
            if lines.separator != "," and _has_decimal_commas(cells, reading):
                cells = [cell.replace(",", ".") for cell in cells]
            found.setdefault(name, []).extend(compress(cells, own))
    return found


def _has_decimal_commas(cells: list[str], reading: Reading) -> bool:
    """Whether a column is one of numbers only if its commas are read as decimal points."""
    plain, with_commas = (text_column(cells, reading, comma) for comma in (False, True))
    return is_text(plain) and not is_text(with_commas)
