"""The folder of runs: their names, and a list that reads a run only after it has changed."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.errors import UserError
from fedssca.evaluate.verdicts import STATUSES
from fedssca.report.gather import (
    LARGEST_OBJECT,
    LARGEST_ROWS,
    RECENT,
    open_file,
    read_file,
    read_object,
    read_row,
)
from fedssca.report.limits import kept_so_far, number
from fedssca.report.methods import folder_trainings, named_problems, run_training
from fedssca.run.schema import AUTO

__all__ = ["RunFolder", "check_name", "last_row"]

Row = dict[str, Any]
NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FILES = ("config.toml", "metrics.jsonl", "result.json")
TRAINING_FILES = ("config.toml", "result.json", "tune.json", "trials.jsonl", "results.jsonl")
CHUNK = 1 << 16
LONGEST_ROW = 1 << 24
"""Bytes from the end of a file within which the last row is searched."""


class ListedRun(NamedTuple):
    """A run in the list, and the signature of the files from which it was read."""

    signature: tuple[Any, ...]
    entry: Row


class RunFolder:
    """A folder of runs. Its runs are the folders directly within it that hold a config.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, ListedRun] = {}
        self._trainings: dict[str, tuple[Any, list[Row]]] = {}

    def path(self, name: str) -> Path:
        """The directory of an existing run."""
        path = self.path_for(name)
        if not (path / "config.toml").is_file():
            raise UserError(f"there is no run named {name!r} in {self.folder}")
        return path

    def path_for(self, name: str) -> Path:
        """The directory that a run of this name has or would have, directly in the folder."""
        if not name or name.startswith(".") or "\0" in name or os.path.basename(name) != name:
            raise UserError(f"{name!r} is not the name of a run")
        return self.folder / name

    def listing(self) -> list[Row]:
        """All runs, the one that changed last first."""
        found: dict[str, ListedRun] = {}
        now = time.time()
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or "\udcff" in entry.name:
                    continue
                with suppress(OSError, UserError):
                    found[entry.name] = self._listed(entry.name, entry.path)
        self._known = found
        rows = [run.entry | _state(run.entry, now) for run in found.values()]
        return sorted(rows, key=lambda row: (-row["modified"], row["name"]))

    def trainings(self) -> list[Row]:
        """All trainings in the folder: its runs, the trials of searches, benchmarks."""
        found: dict[str, tuple[Any, list[Row]]] = {}
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or "\udcff" in entry.name:
                    continue
                signature = tuple(_stamp(f"{entry.path}/{name}") for name in TRAINING_FILES)
                if not any(signature):
                    continue
                known = self._trainings.get(entry.name)
                if known is None or known[0] != signature:
                    path = Path(entry.path)
                    own = run_training(path, entry.name) if signature[0] else None
                    known = (signature, folder_trainings(path) if own is None else [own])
                found[entry.name] = known
        self._trainings = found
        return named_problems([each for name in sorted(found) for each in found[name][1]])

    def _listed(self, name: str, path: str) -> ListedRun:
        """Read the run, unless its files are the same as at the last call."""
        config = os.stat(f"{path}/config.toml")
        stats = [config, *(_stat(f"{path}/{file}") for file in FILES[1:])]
        signature = tuple(_stamp_of(stat) for stat in stats)
        known = self._known.get(name)
        if known and known.signature == signature:
            return known
        modified = max(stat.st_mtime for stat in stats if stat)
        result = read_object(Path(path), "result.json", []) if stats[2] else None
        entry = {"name": name, "modified": modified, "complete": result is not None}
        facts = result or read_object(Path(path), "problem.json", []) or {}
        numbers = _numbers(result or last_row(Path(path)), facts)
        return ListedRun(signature, entry | _settings(Path(path)) | numbers)


def check_name(name: str) -> str:
    """The name, if a new run may have it."""
    if not NEW_NAME.fullmatch(name):
        raise UserError(
            f"{name[:100]!r} cannot be the name of a run: use 1 to 100 letters, digits, dots, "
            "dashes or underscores, beginning with a letter or digit"
        )
    return name


def last_row(path: Path) -> Row | None:
    """The last complete row of metrics.jsonl, found from the end of the file."""
    with suppress(OSError), open_file(path, "metrics.jsonl", LARGEST_ROWS) as file:
        end = size = file.seek(0, os.SEEK_END)
        reach = CHUNK
        while True:
            begin = max(0, end - reach)
            file.seek(begin)
            lines = file.read(end - begin).split(b"\n")
            for line in reversed(lines if begin == 0 else lines[1:]):
                if (row := read_row(line)) is not None:
                    return row
            if begin == 0 or reach > LONGEST_ROW:
                return None
            reach = min(reach * 8, size)
    return None


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _stamp(path: str) -> tuple[int, ...] | None:
    """What changes when a file is written; None without the file."""
    return _stamp_of(_stat(path))


def _stamp_of(stat: os.stat_result | None) -> tuple[int, ...] | None:
    return stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino)


SETTING = re.compile(
    r'^(name|path|rounds|max_rounds|clients|split) = (?:\[\s*)?("[^"\n]*"|\d+)', re.M
)
SECTION = re.compile(r"^\[(data|algorithm)\]\n(.*?)(?=^\[|\Z)", re.M | re.S)


def _settings(path: Path) -> Row:
    """A few settings, without parsing the whole file: runs write it in a fixed layout."""
    text = read_file(path, "config.toml", LARGEST_OBJECT)[: 1 << 16].decode(errors="replace")
    out: Row = {}
    for section, body in SECTION.findall(text):
        for key, value in SETTING.findall(body):
            out[f"{section}.{key}"] = value.strip('"') if value.startswith('"') else int(value)
    if (rounds := out.get("algorithm.rounds", 1)) == AUTO:
        rounds = out.get("algorithm.max_rounds", 1)
    named = Path(str(out.get("data.path", ""))).stem or out.get("data.name", "")
    return {
        "data": str(named),
        "algorithm": str(out.get("algorithm.name", "")),
        "rounds": max(0, rounds - 1) if isinstance(rounds, int) else 0,
    }


def _numbers(row: Row | None, known: Row) -> Row:
    """Round, cost, metric and kept limits of a row; None for what it does not hold."""
    row = row or {}
    return {
        "round": number(row.get("round")),
        "train_cost": number(row.get("train_cost")),
        "test_accuracy": number(row.get("test_accuracy")),
        "test_label_accuracy": number(row.get("test_label_accuracy")),
        "test_rmse": number(row.get("test_rmse")),
        "kept": kept_so_far(known, row.get("constraints")),
        "status": _status(row),
    }


def _status(row: Row) -> str:
    """The worst status of the limits of a finished run; empty if it is not known."""
    certificate = row.get("certificate")
    limits = certificate.get("limits") if isinstance(certificate, dict) else None
    found = [entry.get("status") for entry in limits or () if isinstance(entry, dict)]
    return next((status for status in reversed(STATUSES) if status in found), "")


def _state(entry: Row, now: float) -> Row:
    if entry["complete"]:
        return {"state": "complete"}
    return {"state": "running" if now - entry["modified"] < RECENT else "paused"}
