"""Results of benchmarks that can be stopped: one JSON line for each cell of a table.

A cell has a key, such as {"seed": 0, "rows": "iid"}, and values. It is appended to the file as soon
as it is there, and a cell that the file has is not computed again. `evidence` writes the tables
that are made of the cells into docs/evidence, with what is needed to repeat them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.evidence.pages import table_text
from benchmarks.evidence.record import Part, facts_of, read_record, write_record

Key = Mapping[str, Any]


class Cells:
    """The cells in a file; every line names the code that computed it."""

    def __init__(self, path: Path, code: str = "") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._now = path, code
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        self._found = {_text(line["key"]): line["values"] for line in found}
        self._codes = {line.get("code", "") for line in found}

    @property
    def code(self) -> str:
        """The digest of the code of all cells; empty if they are of several ones."""
        return next(iter(self._codes)) if len(self._codes) == 1 else ""

    def get(self, key: Key) -> dict[str, Any] | None:
        """The values of a cell, None if it was not computed yet."""
        return self._found.get(_text(key))

    def compute(self, key: Key, made: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The values of a cell, computed and kept if the file does not have them."""
        if (known := self.get(key)) is not None:
            return known
        begun, spent = time.perf_counter(), time.process_time()
        values = made() | {
            "seconds": round(time.perf_counter() - begun, 1),
            "processor_seconds": round(time.process_time() - spent, 1),
        }
        self._found[_text(key)] = values
        with self._path.open("a") as file:
            line = {"key": dict(key), "values": values, "code": self._now}
            file.write(json.dumps(line) + "\n")
        self._codes.add(self._now)
        print(f"{key}: {values}", flush=True)
        return values


def _text(key: Key) -> str:
    return json.dumps(dict(key), sort_keys=True)


def evidence(part: Part, cells: Cells, tables: Mapping[str, Any]) -> None:
    """Write tables, each a list of lines with named columns, into the record of a part.

    Tables that the record has under other names stay. The record names the code if all cells were
    computed with the same one.
    """
    known = (read_record(part.name) or {}).get("tables", {})
    made = {name: _rows(lines) for name, lines in tables.items()}
    write_record(part.name, facts_of(part) | {"code": cells.code, "tables": known | made})


def _rows(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A table as docs/evidence has it: the names of the columns, and the rows."""
    names = list(lines[0]) if lines else []
    return {"columns": names, "rows": [[line[name] for name in names] for line in lines]}


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """A table with named columns as Markdown."""
    return table_text(_rows(table))
