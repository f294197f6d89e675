"""A run directory: everything about one run, written so that a crash at any moment loses nothing.

    config.toml     the complete configuration, as resolved
    problem.json    names and limits of the constraints, numbers of parameters, clients and rows
    metrics.jsonl   one JSON object per evaluated round
    result.json     the final row, feasibility, KKT residual, versions
    model.npz       w
    model/          the complete model with its encoder (written by `run/model/files.py`)
    checkpoint/     state.npz: the server's state (written by `run/checkpoint.py`)
    curves.png      cost, accuracy and |w|^2 over the rounds

Files are replaced by a rename: a reader sees the old file or the new one, never a part of one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedssca.errors import UserError

__all__ = ["RunDirectory"]

Row = dict[str, Any]


class RunDirectory:
    """Reads and writes the files of one run; a failure of the disk is a UserError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: str) -> RunDirectory:
        """Start a run in a new or empty folder; if that fails, the disk is as it was before."""
        cls.check_free(path)
        self = cls(path)
        new = [p for p in (path / "checkpoint", path, *path.parents) if not os.path.lexists(p)]
        try:
            with self._disk():
                (path / "checkpoint").mkdir(parents=True, exist_ok=True)
            self.write("config.toml", lambda file: file.write(config.encode()))
        except BaseException:
            for folder in new:
                with suppress(OSError):
                    folder.rmdir()
            raise
        return self

    @classmethod
    def check_free(cls, path: Path) -> None:
        """Raise a UserError if the folder holds a run already, or a file of one."""
        for name in ("config.toml", "metrics.jsonl", "result.json", "model.npz"):
            if os.path.lexists(path / name):
                raise UserError(
                    f"{path} already holds a run ({name}): continue it with --resume {path} "
                    "or use another --out"
                )

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open a run that exists already."""
        if not (path / "config.toml").is_file():
            raise UserError(f"{path} holds no run (no config.toml in it): check the path")
        return cls(path)

    @property
    def config(self) -> str:
        """The configuration of the run, as TOML text."""
        file = self.path / "config.toml"
        try:
            return file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file} cannot be read ({error}): restore that file") from error

    def append(self, row: Row) -> None:
        """Append a row to metrics.jsonl; if that fails, the file still holds complete rows only."""
        line = (json.dumps(row) + "\n").encode()
        with self._disk(), open(self.path / "metrics.jsonl", "ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                while line:
                    line = line[file.write(line) :]
            except OSError:
                with suppress(OSError):
                    file.truncate(end)
                raise

    def rows(self) -> list[Row]:
        """Return all complete rows so far; an incomplete last line is skipped."""
        file = self.path / "metrics.jsonl"
        out: list[Row] = []
        for line in file.read_text(errors="replace").splitlines() if file.exists() else ():
            with suppress(json.JSONDecodeError):
                out.append(json.loads(line))
        return out

    def keep_rows(self, upto: int) -> list[Row]:
        """Delete the rows after round `upto`, from which the run continues; return the others."""
        rows = [row for row in self.rows() if row["round"] <= upto]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self.write("metrics.jsonl", lambda file: file.write(text.encode()))
        return rows

    def save_problem(self, facts: dict[str, Any]) -> None:
        """Write problem.json, before the first row."""
        text = json.dumps(facts) + "\n"
        self.write("problem.json", lambda file: file.write(text.encode()))

    def save_model(self, **arrays: Any) -> None:
        """Write model.npz."""
        self.write("model.npz", lambda file: np.savez(file, **arrays))

    def save_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write result.json, which marks the run as complete; return its content."""
        result = result | {"config_sha256": self.config_sha256}
        text = json.dumps(result, indent=2) + "\n"
        self.write("result.json", lambda file: file.write(text.encode()))
        return result

    def result(self) -> dict[str, Any] | None:
        """Return the content of result.json, or None while the run is not complete."""
        file = self.path / "result.json"
        if not file.exists():
            return None
        try:
            result: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read ({error}): delete it, then resume") from error
        self.check_config(result.get("config_sha256", self.config_sha256))
        return result

    @property
    def config_sha256(self) -> str:
        """The sha256 of the configuration, which files of the run carry."""
        return hashlib.sha256(self.config.encode()).hexdigest()

    def check_config(self, *sha256: str) -> None:
        """Raise a UserError if a file for these configurations is for another than this run's."""
        if self.config_sha256 not in sha256:
            raise UserError(
                f"{self.path / 'config.toml'} is not the config this run was made with: "
                "restore that file, or start a new run with --out"
            )

    def write(self, name: str, fill: Callable[[IO[bytes]], object]) -> None:
        """Replace a file: `fill` writes a draft, which is then renamed."""
        target = self.path / name
        draft = target.with_name(f".{target.name}.part")
        with self._disk():
            if target.parent != self.path:
                target.parent.mkdir(exist_ok=True)
            try:
                with open(draft, "wb") as file:
                    fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, target)
            except BaseException:
                with suppress(OSError):
                    draft.unlink()
                raise

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        with self._disk():
            (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot write to {self.path}: {error.strerror or error}; "
                "free space or choose another folder with --out"
            ) from error
