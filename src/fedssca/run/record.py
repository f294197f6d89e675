"""A run directory: everything about one run, written so that a crash at any moment loses nothing.

    config.toml     the complete configuration, as resolved
    problem.json    names and limits of the constraints, numbers of parameters, clients and rows
    metrics.jsonl   one JSON object an evaluated round
    result.json     the final row, feasibility, KKT residual, versions
    model.npz       w
    checkpoint/     state.npz: the server's state, to continue from
    curves.png      cost, accuracy and |w|^2 over the rounds

Whole files appear by a rename, so a reader sees the old one or the new one, never half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from fedssca.errors import UserError
from fedssca.evaluate.certificate import BestPoints
from fedssca.methods.algorithm import State
from fedssca.run.simulate import Checkpoint

__all__ = ["RunDirectory", "versions"]

Row = dict[str, Any]


class RunDirectory:
    """Reads and writes one run's files. Any failure of the disk is one clear line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: str) -> RunDirectory:
        """Start a run in a new or empty folder; when that fails, nothing is left behind."""
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
        """Raise a UserError if a run is in the folder already, or the traces of one."""
        for name in ("config.toml", "metrics.jsonl", "result.json", "model.npz"):
            if os.path.lexists(path / name):
                raise UserError(
                    f"{path} already holds a run ({name}): continue it with --resume {path} "
                    "or use another --out"
                )

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """A run that exists already."""
        if not (path / "config.toml").is_file():
            raise UserError(f"{path} holds no run (no config.toml in it): check the path")
        return cls(path)

    @property
    def config(self) -> str:
        """The run's configuration, a TOML text."""
        file = self.path / "config.toml"
        try:
            return file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file} cannot be read ({error}): restore that file") from error

    def append(self, row: Row) -> None:
        """Add a row to metrics.jsonl; on failure the file keeps only whole rows."""
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
        """All whole rows so far; a half-written last line is passed over."""
        file = self.path / "metrics.jsonl"
        out: list[Row] = []
        for line in file.read_text(errors="replace").splitlines() if file.exists() else ():
            with suppress(json.JSONDecodeError):
                out.append(json.loads(line))
        return out

    def keep_rows(self, upto: int) -> list[Row]:
        """Forget rows after round `upto`: the run goes on from a checkpoint there."""
        rows = [row for row in self.rows() if row["round"] <= upto]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self.write("metrics.jsonl", lambda file: file.write(text.encode()))
        return rows

    def save_state(self, at: Checkpoint) -> None:
        """Replace the checkpoint."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(at.state)]
        arrays: dict[str, Any] = {f"leaf{i}": leaf for i, leaf in enumerate(leaves)}
        for name, point in vars(at.points).items():
            if point is not None:
                arrays |= {f"{name}_w": np.asarray(point[0]), f"{name}_row": json.dumps(point[1])}
        self.write(
            "checkpoint/state.npz",
            lambda file: np.savez(file, config=self._key(), seconds=at.seconds, **arrays),
        )

    def load_state(self, like: State) -> Checkpoint | None:
        """The last checkpoint, laid out as `like`; None when there is none yet."""
        path = self.path / "checkpoint" / "state.npz"
        if not path.exists():
            return None
        leaves, shape = jax.tree.flatten(like)
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
                if str(saved["config"]) != self._key():
                    raise self._changed()
                stored = [saved[f"leaf{i}"] for i in range(len(leaves))]
                seconds = float(saved["seconds"])
                points = BestPoints(
                    **{
                        name: (
                            jax.numpy.asarray(saved[f"{name}_w"]),
                            json.loads(str(saved[f"{name}_row"])),
                        )
                        for name in ("best", "last", "least")
                        if f"{name}_w" in saved
                    }
                )
        except UserError:
            raise
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(
                f"{path} cannot be read ({error}): delete it to start the run over"
            ) from error
        if any(
            a.shape != b.shape or a.dtype != b.dtype for a, b in zip(stored, leaves, strict=True)
        ):
            raise UserError(f"{path} does not fit this problem: start a new run with --out")
        state = jax.tree.unflatten(shape, [jax.numpy.asarray(leaf) for leaf in stored])
        return Checkpoint(state, points, seconds)

    def save_problem(self, facts: dict[str, Any]) -> None:
        """Write problem.json, before the first row."""
        text = json.dumps(facts) + "\n"
        self.write("problem.json", lambda file: file.write(text.encode()))

    def save_model(self, **arrays: Any) -> None:
        """Write model.npz."""
        self.write("model.npz", lambda file: np.savez(file, **arrays))

    def save_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write result.json: the run is complete. Returns what it holds."""
        result = result | {"config_sha256": self._key()}
        text = json.dumps(result, indent=2) + "\n"
        self.write("result.json", lambda file: file.write(text.encode()))
        return result

    def result(self) -> dict[str, Any] | None:
        """result.json, or None while the run is not complete."""
        file = self.path / "result.json"
        if not file.exists():
            return None
        try:
            result: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read ({error}): delete it, then resume") from error
        if result.get("config_sha256", self._key()) != self._key():
            raise self._changed()
        return result

    def _changed(self) -> UserError:
        return UserError(
            f"{self.path / 'config.toml'} is not the config this run was made with: "
            "restore that file, or start a new run with --out"
        )

    def _key(self) -> str:
        return hashlib.sha256(self.config.encode()).hexdigest()

    def write(self, name: str, fill: Callable[[IO[bytes]], object]) -> None:
        """Put a file in place whole: `fill` writes a draft, which then takes the name."""
        target = self.path / name
        draft = target.with_name(f".{target.name}.part")
        with self._disk():
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

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot write to {self.path}: {error.strerror or error}; "
                "free space or choose another folder with --out"
            ) from error


def versions() -> dict[str, str]:
    """Versions that decide the numbers of a run."""
    names = ("fedssca", "jax", "jaxlib", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def extras() -> dict[str, dict[str, str]]:
    """What each optional extra asks for, with the installed versions; "": not installed."""
    found: dict[str, dict[str, str]] = {}
    for line in requires("fedssca") or ():
        named = re.match(r"""([\w.-]+).*;.*extra == ["']([\w-]+)["']""", line)
        if named and named[2] not in ("docs", "test"):
            found.setdefault(named[2], {})[named[1]] = _installed(named[1])
    return found


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
