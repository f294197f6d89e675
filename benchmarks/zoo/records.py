"""Results in a file of JSON lines, one per run, that is read again when a run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]
"""The results of one run, with its case, method, seed, and for a rival its trial."""
KEY = ("case", "method", "seed", "trial")


def key_of(record: Record) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in KEY)


class Store:
    """All results by case, method, seed and trial; a new one is written at once."""

    def __init__(self, place: Path, fresh: bool = False) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            place.unlink(missing_ok=True)
        self.place, self._found = place, {}
        for text in place.read_text().splitlines() if place.exists() else []:
            try:
                record = json.loads(text)
            except json.JSONDecodeError:  # the line of a run that was killed while writing
                continue
            self._found[key_of(record)] = record

    def __contains__(self, key: Record) -> bool:
        return key_of(key) in self._found

    def __getitem__(self, key: Record) -> Record:
        return self._found[key_of(key)]

    @property
    def records(self) -> list[Record]:
        return list(self._found.values())

    def add(self, record: Record) -> None:
        self._found[key_of(record)] = record
        cut = self.place.exists() and self.place.read_bytes()[-1:] != b"\n"
        with self.place.open("a") as file:
            file.write(("\n" if cut else "") + json.dumps(record) + "\n")
