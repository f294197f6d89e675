"""Tables that are measured row by row, and kept in the record of their part of the evidence.

A row has cells that name it, and cells that are measured. Every row is written as soon as it is
measured, so that a command that was stopped goes on where it was, as long as the code is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.evidence.pages import row_text, table_text
from benchmarks.evidence.record import (
    FOLDER,
    Part,
    facts_of,
    read_record,
    write_record,
)

__all__ = ["Evidence", "Row", "Table"]

Cells = Sequence[Any]
Row = tuple[Cells, Callable[[], Cells]]
"""The cells that name a row, and a function that measures the others."""


class Table(NamedTuple):
    """What is measured."""

    columns: Mapping[str, str]
    """Title -> how numbers in it are written, such as ".4f"; "" as they are."""
    rows: Iterable[Row]


class Evidence:
    """The record of a part, in which every table knows the code that measured it."""

    def __init__(self, part: Part, folder: Path = FOLDER) -> None:
        self._part, self._folder, self._facts = part, folder, facts_of(part)
        self.tables: dict[str, Any] = (read_record(part.name, folder) or {}).get("tables", {})

    def measure(self, name: str, table: Table, fresh: bool) -> None:
        """Measure the rows of a table that are not there yet; with `fresh` all of them."""
        known = self.tables.get(name, {})
        same = known.get("code") == self._facts["code"] and not fresh
        before, rows = known.get("rows", []) if same else [], list[list[Any]]()
        print(f"\n{name}\n\n{table_text({'columns': table.columns, 'rows': []})}", end="")
        for key, how in table.rows:
            there = [row for row in before if row[: len(key)] == list(key)]
            rows.append(there[0] if there else [*key, *how()])
            print(row_text(table.columns, rows[-1]), flush=True)
            if not there:
                self._keep(name, table.columns, [*rows, *(r for r in before if r not in rows)])
        if rows != before:
            self._keep(name, table.columns, rows)

    def _keep(self, name: str, columns: Mapping[str, str], rows: list[list[Any]]) -> None:
        code, date = self._facts["code"], self._facts["date"]
        self.tables[name] = {"date": date, "code": code, "columns": dict(columns), "rows": rows}
        codes = {table.get("code") for table in self.tables.values()}
        told = self._facts | {"code": code if len(codes) == 1 else ""}
        write_record(self._part.name, told | {"tables": self.tables}, self._folder)
