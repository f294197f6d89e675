"""The folder of runs: which there are, and the numbers of each for a list, read once a change."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.errors import UserError
from fedssca.report.gather import RECENT, inside, read_row

__all__ = ["Shelf", "check_name", "last_row"]

Row = dict[str, Any]
NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FILES = ("config.toml", "metrics.jsonl", "result.json")
CHUNK = 1 << 16
LONGEST = 1 << 24
"""Bytes of a row beyond which it is not looked for."""


class Glance(NamedTuple):
    """What a list says of a run."""

    key: tuple[Any, ...]
    entry: Row


class Shelf:
    """Runs are the folders right below `folder` that hold a config.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Glance] = {}

    def path(self, name: str) -> Path:
        """The folder of an existing run; names with a path in them are no runs."""
        path = self.place(name)
        if not (path / "config.toml").is_file():
            raise UserError(f"there is no run {name!r} (any more)")
        return path

    def place(self, name: str) -> Path:
        """Where a run of this name is or would be: right below the folder, nowhere else."""
        if not name or name.startswith(".") or "\0" in name or os.path.basename(name) != name:
            raise UserError(f"{name!r} is not the name of a run")
        return self.folder / name

    def listing(self) -> list[Row]:
        """Every run, the one that changed last first."""
        found: dict[str, Glance] = {}
        now = time.time()
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or "\udcff" in entry.name:
                    continue
                with suppress(OSError, UserError):
                    found[entry.name] = self._glance(entry.name, entry.path)
        self._known = found
        rows = [glance.entry | _state(glance.entry, now) for glance in found.values()]
        return sorted(rows, key=lambda row: (-row["modified"], row["name"]))

    def _glance(self, name: str, path: str) -> Glance:
        """Read again only what has changed since the last time."""
        config = os.stat(f"{path}/config.toml")
        stats = [config, *(_stat(f"{path}/{file}") for file in FILES[1:])]
        key = tuple(stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)
        known = self._known.get(name)
        if known and known.key == key:
            return known
        modified = max(stat.st_mtime for stat in stats if stat)
        result = _read_result(Path(path)) if stats[2] else None
        entry = {"name": name, "modified": modified, "complete": result is not None}
        return Glance(key, entry | _settings(Path(path)) | _numbers(result or last_row(Path(path))))


def check_name(name: str) -> str:
    """A name for a new run: letters, digits, dot, dash, underscore."""
    if not NEW_NAME.fullmatch(name):
        raise UserError(
            f"{name[:100]!r}: a name has 1 to 100 letters, digits, dots, dashes or underscores, "
            "and begins with a letter or digit"
        )
    return name


def last_row(path: Path) -> Row | None:
    """The last whole row of metrics.jsonl, read from its end."""
    with suppress(OSError), open(inside(path, "metrics.jsonl"), "rb") as file:
        end = size = file.seek(0, os.SEEK_END)
        reach = CHUNK
        while True:
            begin = max(0, end - reach)
            file.seek(begin)
            lines = file.read(end - begin).split(b"\n")
            for line in reversed(lines if begin == 0 else lines[1:]):
                if (row := read_row(line)) is not None:
                    return row
            if begin == 0 or reach > LONGEST:
                return None
            reach = min(reach * 8, size)
    return None


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _read_result(path: Path) -> Row | None:
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(inside(path, "result.json").read_bytes())
        return found if isinstance(found, dict) else None
    return None


SETTING = re.compile(r'^(name|path|rounds|clients|split) = ("[^"\n]*"|\d+)', re.M)
SECTION = re.compile(r"^\[(data|algorithm)\]\n(.*?)(?=^\[|\Z)", re.M | re.S)


def _settings(path: Path) -> Row:
    """A few settings, without parsing all of a file that we rendered ourselves."""
    text = inside(path, "config.toml").read_bytes()[: 1 << 16].decode(errors="replace")
    out: Row = {}
    for section, body in SECTION.findall(text):
        for key, value in SETTING.findall(body):
            out[f"{section}.{key}"] = value.strip('"') if value.startswith('"') else int(value)
    named = Path(str(out.get("data.path", ""))).stem or out.get("data.name", "")
    return {
        "data": str(named),
        "algorithm": str(out.get("algorithm.name", "")),
        "rounds": max(0, int(out.get("algorithm.rounds", 1)) - 1),
    }


def _numbers(row: Row | None) -> Row:
    """Round, cost, accuracy and limits of a row, whatever it holds."""
    row = row or {}

    def number(name: str) -> float | None:
        value = row.get(name)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        return value if good and abs(value) < 1e300 else None  # type: ignore[arg-type]

    values = row.get("constraints")
    kept = None
    if isinstance(values, list) and values and all(isinstance(v, int | float) for v in values):
        kept = [sum(value <= 0 for value in values), len(values)]
    return {
        "round": number("round"),
        "train_cost": number("train_cost"),
        "test_accuracy": number("test_accuracy"),
        "kept": kept,
    }


def _state(entry: Row, now: float) -> Row:
    if entry["complete"]:
        return {"state": "complete"}
    return {"state": "going" if now - entry["modified"] < RECENT else "paused"}
