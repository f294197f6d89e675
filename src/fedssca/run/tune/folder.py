"""The folder of a search.

trials.jsonl         one JSON object per finished trial; the same command continues from there
tune.json            all trials, seeds and versions
best-<method>.toml   the complete run with the best settings, on all training rows
"""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedssca.errors import UserError
from fedssca.run.record import RunDirectory
from fedssca.run.tune.trial import Trial

__all__ = ["SearchFolder"]

Row = dict[str, Any]


class SearchFolder:
    """The files of a search: finished trials, results, and one TOML per method."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self._key, self._files = path, key, RunDirectory(path)
        self._rows = self._read()
        self._new: list[Path] = []

    def _read(self) -> list[Row]:
        rows: list[Row] = []
        try:
            text = (self.path / "trials.jsonl").read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return rows
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror or error}") from error
        for line in text.splitlines():
            with suppress(json.JSONDecodeError):
                rows.append(json.loads(line))
        if any(row.get("key") != self._key for row in rows):
            raise UserError(
                f"{self.path} holds the trials of another config, seed or data: "
                "use another --out for this search"
            )
        return rows

    @property
    def trials(self) -> list[Trial]:
        """All finished trials."""
        return [Trial(**{k: v for k, v in row.items() if k != "key"}) for row in self._rows]

    def create(self) -> None:
        """Make the folder and check that it can be written to."""
        new = [self.path, *self.path.parents]
        self._new = [path for path in new if not os.path.lexists(path)]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot write to {self.path}: {error.strerror or error}; "
                "choose another folder with --out"
            ) from error
        self._save()

    def discard(self) -> None:
        """Remove the folder again if no trial was finished."""
        if not self._rows:
            for remove in (
                (self.path / "trials.jsonl").unlink,
                *(path.rmdir for path in self._new),
            ):
                with suppress(OSError):
                    remove()

    def add(self, trial: Trial) -> None:
        """Store a finished trial."""
        self._rows.append({"key": self._key, **dataclasses.asdict(trial)})
        self._save()

    def _save(self) -> None:
        self.write("trials.jsonl", "".join(json.dumps(row) + "\n" for row in self._rows))

    def write(self, name: str, text: str) -> None:
        """Write a file in one step: a reader sees the old file or the new one."""
        self._files.write(name, lambda file: file.write(text.encode()))
