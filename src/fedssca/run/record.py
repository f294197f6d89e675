"""A run directory: everything about one run, written so that a crash at any moment loses nothing.

    config.toml     the complete configuration, as resolved
    problem.json    names and limits of the constraints, numbers of parameters, clients and rows
    metrics.jsonl   one JSON object per evaluated round
    result.json     the final row, feasibility, KKT residual, versions
    model.npz       w
    model/          the complete model with its encoder (written by `run/model/files.py`)
    certificate.json what is promised for new rows (written by `run/promise`)
    personal/       the parts of the model that belong to single clients, one file for each
    checkpoint/     state.npz: the server's state (written by `run/checkpoint.py`)
    curves.png      cost, accuracy and |w|^2 over the rounds

Files are replaced by a rename: a reader sees the old file or the new one, never a part of one. The
content reaches the disk before the name does, and the rows before the checkpoint that counts them.
One process at a time writes to a run directory; it holds a lock on the folder. Folders that are
made here can be read by their owner only.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedssca.errors import UserError

__all__ = ["RunDirectory"]

Row = dict[str, Any]
SYNC = 1.0
"""Seconds after which rows that were appended are written to the disk, if nothing else does it."""


class RunDirectory:
    """Reads and writes the files of one run; a failure of the disk is a UserError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._synced = 0.0
        """When the rows were last written to the disk."""

    @classmethod
    def create(cls, path: Path, config: str) -> RunDirectory:
        """Start a run in a new or empty folder; if that fails, the disk is as it was before."""
        cls.check_free(path)
        self = cls(path)
        new = [p for p in (path / "checkpoint", path, *path.parents) if not os.path.lexists(p)]
        try:
            self.make()
            with self._disk():
                (path / "checkpoint").mkdir(mode=0o700, exist_ok=True)
            with self.locked():
                cls.check_free(path)  # another process may have been faster
                self.write("config.toml", lambda file: file.write(config.encode()))
        except BaseException:
            for folder in new:
                with suppress(OSError):
                    folder.rmdir()
            raise
        return self

    def make(self) -> None:
        """Make the folder, readable by its owner only, if it is not there."""
        with self._disk():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
                _sync_folder(self.path.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that writes to this run; a UserError if another one does.

        The lock is on the folder itself and ends with the process. File systems without locks, and
        Windows, have none.
        """
        try:
            import fcntl

            folder = os.open(self.path, os.O_RDONLY)
        except (ImportError, OSError):
            yield
            return
        try:
            with suppress(OSError):
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise UserError(
                        f"another process is writing to {self.path}: wait until it ends, or stop "
                        "it, then resume"
                    ) from None
            yield
        finally:
            os.close(folder)

    def delete_drafts(self) -> None:
        """Delete what a killed process left half written; only its successor, locked, may."""
        for draft in [*self.path.glob(".*.part"), *self.path.glob("*/.*.part")]:
            with suppress(OSError):
                draft.unlink()

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
        with self._disk(), open(self._rows_file, "ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                while line:
                    line = line[file.write(line) :]
                if time.monotonic() - self._synced > SYNC:
                    os.fsync(file.fileno())
                    self._synced = time.monotonic()
            except OSError:
                with suppress(OSError):
                    file.truncate(end)
                raise

    def sync_rows(self) -> None:
        """Write all rows to the disk; a checkpoint and the result come after them."""
        with self._disk(), suppress(FileNotFoundError), open(self._rows_file, "rb") as file:
            os.fsync(file.fileno())

    @property
    def _rows_file(self) -> Path:
        return self.path / "metrics.jsonl"

    def extend(self, name: str, at: int, data: bytes) -> None:
        """Put further bytes of a copied file behind its first `at` bytes."""
        with self._disk(), open(self.path / name, "r+b") as file:
            file.seek(at)
            file.write(data)
            file.truncate()

    def rows(self) -> list[Row]:
        """Return all complete rows so far; an incomplete last line is skipped."""
        file = self._rows_file
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
        self.sync_rows()
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
        """Replace a file: `fill` writes a draft with a name of its own, which is then renamed."""
        target = self.path / name
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        with self._disk():
            if target.parent != self.path:
                target.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                with open(draft, "xb") as file:
                    fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, target)
                _sync_folder(target.parent)
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


def _sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can do that."""
    with suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
