"""Results of benchmarks that can be stopped: one JSON line for each cell of a table.

A cell has a key, such as {"seed": 0, "rows": "iid"}, and values. It is appended to the file as soon
as it is there, and a cell that the file has is not computed again. `evidence` writes the tables
that are made of the cells, with what is needed to repeat them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedssca.run.versions import versions

Key = Mapping[str, Any]


class Cells:
    """The cells in a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._found = {_text(line["key"]): line["values"] for line in map(json.loads, lines)}

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
            file.write(json.dumps({"key": dict(key), "values": values}) + "\n")
        print(f"{key}: {values}", flush=True)
        return values


def _text(key: Key) -> str:
    return json.dumps(dict(key), sort_keys=True)


def evidence(
    path: Path, commands: Sequence[str], seeds: Sequence[int], tables: Mapping[str, Any]
) -> None:
    """Write tables, each a list of lines with named columns, and how they were made.

    Tables that the file has under other names stay.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    told = {
        "command": sorted({*known.get("command", []), *commands}),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "seeds": sorted({*known.get("seeds", []), *seeds}),
        "tables": known.get("tables", {}) | {name: _rows(lines) for name, lines in tables.items()},
    }
    path.write_text(json.dumps(told, indent=1) + "\n")


def _rows(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A table as docs/evidence has it: the names of the columns, and the rows."""
    names = list(lines[0]) if lines else []
    return {"columns": names, "rows": [[line[name] for name in names] for line in lines]}


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """A table with named columns as Markdown."""
    names = list(table[0]) if table else []
    lines = [names, ["---"] * len(names), *([line[name] for name in names] for line in table)]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
