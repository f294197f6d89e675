"""A run directory as plain data for a page, be the run complete, running, stopped or damaged.

A run directory may come from somebody else, so nothing in it is trusted. Numbers are numbers or
None, names are text, and files that cannot be read are left out and listed under "trouble".
"""

from __future__ import annotations

import base64
import json
import math
import os
import stat
import time
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from fedssca.report.limits import number, shown_limits
from fedssca.report.sites import SiteRecord

__all__ = [
    "LARGEST_OBJECT",
    "LARGEST_ROWS",
    "RECENT",
    "columns",
    "gather",
    "is_recent",
    "open_file",
    "read_file",
    "read_object",
    "read_row",
    "setting_leaves",
    "thin",
]

Row = dict[str, Any]
MOST_CONSTRAINTS = 60
"""Limits whose curves a page can draw; the certificate lists all of them."""
WHOLE_CURVES = 12
"""Limits whose curves have all points; those of more limits have fewer points each."""
RECENT = 30.0
"""Seconds since the last change of its files for which an unfinished run counts as running."""
LISTS = {"constraints": "value", "multipliers": "multiplier", "slack": "slack"}
"""Lists in a row, and how the columns made of them are named."""
LARGEST_ROWS = 1 << 30
"""Bytes of the largest file of rows that is read."""
LARGEST_OBJECT = 1 << 26
"""Bytes of the largest configuration or result that is read."""
LARGEST_PICTURE = 4_000_000
"""Bytes of the largest picture that is shown."""


def gather(
    path: Path,
    points: int = 2000,
    name: str | None = None,
    rows: Sequence[Row] | None = None,
    sites: SiteRecord | None = None,
) -> Row:
    """Everything about a run that a page shows, with curves of about `points` points at most.

    `rows` are the rows of metrics.jsonl, and `sites` is the record of the sites of a deployed run,
    if they have been read already.
    """
    trouble: list[str] = []
    result = read_object(path, "result.json", trouble)
    rows = _read_lines(path, "metrics.jsonl") if rows is None else rows
    known = result or read_object(path, "problem.json", []) or {}
    values = _list(rows[-1], "constraints") if rows else []
    limits = shown_limits(known, values)
    constraints = shown_limits(known, values, MOST_CONSTRAINTS)
    shown, every = thin(rows, points * WHOLE_CURVES // max(WHOLE_CURVES, len(constraints)))
    return {
        "name": name or path.resolve().name,
        "state": "complete" if result else "running" if is_recent(path) else "paused",
        "settings": _settings(path, trouble),
        "constraints": constraints,
        "more_constraints": len(limits) - len(constraints),
        "series": columns(shown, constraints),
        "every": every,
        "result": _plain(result),
        "deployed": (path / "deploy.json").is_file(),
        "site_names": [
            str(name) for name in _list(read_object(path, "census.json", trouble) or {}, "names")
        ],
        **_plain((sites or _site_record(path)).shown()),
        "audit": _plain(read_object(path, "audit.json", trouble)),
        "audit_picture": _picture(path, "attack.png") or _picture(path, "audit.png"),
        "trouble": trouble,
    }


def is_recent(path: Path) -> bool:
    """Whether the run wrote something within the last RECENT seconds."""
    latest = 0.0
    for name in ("metrics.jsonl", "config.toml"):
        with suppress(OSError):
            latest = max(latest, (path / name).stat().st_mtime)
    return time.time() - latest < RECENT


def _read_lines(path: Path, name: str, key: str = "round") -> list[Row]:
    """The lines of a file that are JSON objects with `key`; other lines are skipped."""
    try:
        lines = read_file(path, name, LARGEST_ROWS).splitlines()
    except OSError:
        return []
    return [row for line in lines if (row := read_row(line, key)) is not None]


def read_row(line: bytes, key: str = "round") -> Row | None:
    """The JSON object with `key` that a line holds; None if it holds anything else."""
    with suppress(ValueError, RecursionError):
        row = json.loads(line)
        if isinstance(row, dict) and key in row:
            return row if key != "round" or number(row[key]) is not None else None
    return None


def open_file(path: Path, name: str, most: int) -> BinaryIO:
    """Open a run's file for reading; OSError unless it is a plain file of at most `most` bytes.

    A pipe or a device in its place, which could be read for ever, is refused without waiting for
    it, and so is a link to a place outside the run directory.
    """
    file = path / name
    if file.is_symlink() and not file.resolve().is_relative_to(path.resolve()):
        raise FileNotFoundError(f"{name} is a link to a place outside {path}")
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        os.close(handle)
        raise OSError(f"{name} is no file, or larger than {most:,} bytes")
    return os.fdopen(handle, "rb")


def read_file(path: Path, name: str, most: int) -> bytes:
    """The content of a run's file, as `open_file` opens it."""
    with open_file(path, name, most) as file:
        return file.read(most)


def columns(rows: Sequence[Row], constraints: Sequence[Row]) -> dict[str, list[float | None]]:
    """The numbers in rows as columns. An entry of a list gets a column like "value.0"."""
    flat = [_flat(row, constraints) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: [row.get(name) for row in flat] for name in names}


def thin(rows: Sequence[Row], points: int) -> tuple[list[Row], int]:
    """Every k-th row and the last one, about `points` rows at most; and k."""
    every = max(1, math.ceil(len(rows) / max(points, 2)))
    kept = list(rows[::every])
    if rows and kept[-1] is not rows[-1]:
        kept.append(rows[-1])
    return kept, every


def _flat(row: Row, constraints: Sequence[Row]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, value in row.items():
        if name in LISTS:
            values = _list(row, name)
            indices = [m for entry in constraints for m in entry["indices"]]
            wanted = {m: f"{LISTS[name]}.{m}" for m in indices}
            found = {label: number(values[m]) for m, label in wanted.items() if m < len(values)}
        else:
            found = {name: number(value)}
        out |= {key: _short(value) for key, value in found.items() if value is not None}
    return out


def _short(value: float) -> float:
    """The number with seven digits, which halves the size of a page; no screen shows more."""
    return value if isinstance(value, int) else float(f"{value:.7g}")


def _list(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    return value if isinstance(value, list) else []


def read_object(path: Path, name: str, trouble: list[str]) -> Row | None:
    """The object in a JSON file; None if there is no file, or if it is damaged (see `trouble`)."""
    try:
        found = json.loads(read_file(path, name, LARGEST_OBJECT))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        trouble.append(f"{name} cannot be read: {error}")
        return None
    if not isinstance(found, dict):
        trouble.append(f"{name} cannot be read: it does not hold a JSON object")
        return None
    return found


def _settings(path: Path, trouble: list[str]) -> dict[str, str]:
    """The settings in config.toml: "section.key" -> text."""
    try:
        tree = tomllib.loads(read_file(path, "config.toml", LARGEST_OBJECT).decode())
    except (OSError, ValueError, RecursionError) as error:
        trouble.append(f"config.toml cannot be read: {error}")
        return {}
    settings = dict(setting_leaves(tree))
    if settings.get("data.path") or settings.get("data.query"):
        settings.pop("data.name", None)  # own data take the place of the ready-made data set
    return settings


def setting_leaves(tree: Any, where: str = "") -> Iterable[tuple[str, str]]:
    """The settings of a configuration as pairs of "section.key" and text."""
    if isinstance(tree, dict):
        items: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, list) and tree and isinstance(tree[0], dict):
        items = enumerate(tree)
    else:
        yield where, tree if isinstance(tree, str) else json.dumps(tree, default=str)
        return
    for key, value in items:
        yield from setting_leaves(value, f"{where}.{key}" if where else str(key))


def _plain(value: Any) -> Any:
    """The same value with None for numbers that JSON does not have (NaN and infinity)."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _site_record(path: Path) -> SiteRecord:
    return SiteRecord(_read_lines(path, "sites.jsonl"), _read_lines(path, "events.jsonl", "event"))


def _picture(path: Path, name: str) -> str | None:
    """A PNG file as a data URL; None if there is none or it is not a PNG."""
    try:
        data = read_file(path, name, LARGEST_PICTURE)
    except OSError:
        return None
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    return "data:image/png;base64," + base64.b64encode(data).decode()
