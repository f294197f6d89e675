"""Measured tables: rows that are kept in a JSON file, and shown on a page between two marks.

A row has cells that name it, and cells that are measured. Every row is written as soon as it is
measured, so that a command that was stopped goes on where it was. A page shows a table where it has

    <!-- table adult -->
    <!-- end of table -->
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Evidence", "Table"]

Cells = Sequence[Any]
Row = tuple[Cells, Callable[[], Cells]]
"""The cells that name a row, and a function that measures the others."""


class Table(NamedTuple):
    """What is measured."""

    columns: Mapping[str, str]
    """Title -> how numbers in it are written, such as ".4f"; "" as they are."""
    rows: Iterable[Row]


class Evidence:
    """The JSON file of a page: command, date, versions, seeds, and the rows of every table."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.content: dict[str, Any] = {"tables": {}}
        if place.exists():
            self.content = json.loads(place.read_text())

    def measure(self, name: str, table: Table, fresh: bool, **facts: Any) -> None:
        """Measure the rows of a table that are not there yet; with `fresh` all of them."""
        before = [] if fresh else self.content["tables"].get(name, {}).get("rows", [])
        rows: list[list[Any]] = []
        print(f"\n{name}\n\n{_line(table.columns)}\n{_line('---' for _ in table.columns)}")
        for key, how in table.rows:
            known = [row for row in before if row[: len(key)] == list(key)]
            rows.append(known[0] if known else [*key, *how()])
            print(_written(table.columns, rows[-1]), flush=True)
            if not known:
                later = [row for row in before if row not in rows]
                self._keep(name, table.columns, [*rows, *later], facts)
        if rows != before:
            self._keep(name, table.columns, rows, facts)

    def _keep(
        self, name: str, columns: Mapping[str, str], rows: list[list[Any]], facts: dict[str, Any]
    ) -> None:
        today = datetime.now(UTC).date().isoformat()
        tables = self.content["tables"]
        tables[name] = {"date": today, "columns": dict(columns), "rows": rows}
        self.content = facts | {"date": today, "tables": tables}
        self.place.parent.mkdir(parents=True, exist_ok=True)
        self.place.write_text(json.dumps(self.content, indent=1) + "\n")

    def shown(self, name: str) -> str:
        """A table in Markdown."""
        table = self.content["tables"][name]
        columns = table["columns"]
        lines = [_line(columns), _line("---" for _ in columns)]
        return "\n".join([*lines, *(_written(columns, row) for row in table["rows"])])

    def on_page(self, page: str) -> str:
        """The text of a page with the tables as they were measured last."""

        def filled(found: re.Match[str]) -> str:
            name, end = found[1], "<!-- end of table -->"
            if name not in self.content["tables"]:
                return found[0]
            return f"<!-- table {name} -->\n\n{self.shown(name)}\n\n{end}"

        return re.sub(
            r"<!-- table (\w+) -->.*?<!-- end of table -->", filled, page, flags=re.DOTALL
        )


def _written(columns: Mapping[str, str], row: Cells) -> str:
    return _line(_cell(cell, style) for cell, style in zip(row, columns.values(), strict=True))


def _cell(cell: Any, style: str) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return format(cell, style) if isinstance(cell, float) else str(cell)


def _line(cells: Iterable[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
