"""A run directory as plain data for a page, in whatever state it is: going, stopped, damaged.

Nothing in a run directory is trusted here: it may come from somebody else. Numbers are numbers or
None, names are text, and what cannot be read is left out and said.
"""

from __future__ import annotations

import base64
import json
import math
import time
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["columns", "gather", "going", "inside", "limits_of", "read_lines", "read_row", "thin"]

Row = dict[str, Any]
MOST = 12
"""Constraints with curves of their own; the others are in the certificate."""
RECENT = 30.0
"""Seconds after its last row that an unfinished run counts as going."""
LISTS = {"constraints": "value", "multipliers": "multiplier", "slack": "slack"}
PICTURE = 4_000_000
"""Bytes of the largest picture that is shown."""


def gather(
    path: Path, points: int = 2000, name: str | None = None, rows: Sequence[Row] | None = None
) -> Row:
    """Everything about a run that a page shows; curves of at most `points` points.

    `rows` are those of metrics.jsonl if they have been read already.
    """
    said: list[str] = []
    result = _json(path, "result.json", said)
    rows = read_lines(path, "metrics.jsonl") if rows is None else rows
    limits = limits_of(path, result, rows[-1] if rows else None)
    shown, every = thin(rows, points)
    return {
        "name": name or path.resolve().name,
        "state": "complete" if result else "going" if going(path) else "paused",
        "settings": _settings(path, said),
        "constraints": limits,
        "more_constraints": max(_count(rows[-1:]), len(limits)) - len(limits),
        "series": columns(shown, limits),
        "every": every,
        "result": _plain(result),
        "sites": _sites(path),
        "site_names": [
            str(name) for name in _list(_json(path, "census.json", said) or {}, "names")
        ],
        "events": [_plain(event) for event in read_lines(path, "events.jsonl", "event")[-50:]],
        "audit": _plain(_json(path, "audit.json", said)),
        "audit_picture": _picture(path, "attack.png") or _picture(path, "audit.png"),
        "trouble": said,
    }


def going(path: Path) -> bool:
    """Something was written to the run a moment ago."""
    latest = 0.0
    for name in ("metrics.jsonl", "config.toml"):
        with suppress(OSError):
            latest = max(latest, (path / name).stat().st_mtime)
    return time.time() - latest < RECENT


def read_lines(path: Path, name: str, key: str = "round") -> list[Row]:
    """The whole lines of a file that are objects with `key`; half a line is passed over."""
    try:
        lines = inside(path, name).read_bytes().splitlines()
    except OSError:
        return []
    return [row for line in lines if (row := read_row(line, key)) is not None]


def read_row(line: bytes, key: str = "round") -> Row | None:
    """A line as an object with `key`; None if it is anything else."""
    with suppress(ValueError, RecursionError):
        row = json.loads(line)
        if isinstance(row, dict) and key in row:
            return row if key != "round" or _number(row[key]) is not None else None
    return None


def inside(path: Path, name: str) -> Path:
    """A file of a run; OSError if it is a link that leads out of the run directory."""
    file = path / name
    if file.is_symlink() and not file.resolve().is_relative_to(path.resolve()):
        raise FileNotFoundError(f"{name} leads out of {path}")
    return file


def limits_of(path: Path, result: Row | None, last: Row | None) -> list[Row]:
    """Name, limit and number of the constraints to draw: all of few, of many the worst ones."""
    known = result or _json(path, "problem.json", []) or {}
    names = known.get("constraint_names")
    limits = known.get("limits")
    names = names if isinstance(names, list) else []
    limits = limits if isinstance(limits, list) else []
    count = max(len(names), len(limits), _count([last] if last else []))
    values = _list(last, "constraints") if last else []

    def worst(m: int) -> float:
        value = _number(values[m]) if m < len(values) else None
        return math.inf if value is None else -value

    chosen = sorted(sorted(range(count), key=worst)[:MOST])
    return [
        {
            "index": m,
            "name": str(names[m]) if m < len(names) else f"constraint {m + 1}",
            "limit": _number(limits[m]) if m < len(limits) else None,
        }
        for m in chosen
    ]


def columns(rows: Sequence[Row], limits: Sequence[Row]) -> dict[str, list[float | None]]:
    """Rows as columns: the numbers of a row under their names, list entries as "value.0"."""
    flat = [_flat(row, limits) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: [row.get(name) for row in flat] for name in names}


def thin(rows: Sequence[Row], points: int) -> tuple[list[Row], int]:
    """Every k-th row and the last one, so that at most about `points` are left; and k."""
    every = max(1, math.ceil(len(rows) / max(points, 2)))
    kept = list(rows[::every])
    if rows and kept[-1] is not rows[-1]:
        kept.append(rows[-1])
    return kept, every


def _flat(row: Row, limits: Sequence[Row]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, value in row.items():
        if name in LISTS:
            values = _list(row, name)
            wanted = {m: f"{LISTS[name]}.{m}" for m in (entry["index"] for entry in limits)}
            found = {label: _number(values[m]) for m, label in wanted.items() if m < len(values)}
        else:
            found = {name: _number(value)}
        out |= {key: _short(number) for key, number in found.items() if number is not None}
    return out


def _short(number: float) -> float:
    """Seven digits: what a screen can show, in half the bytes."""
    return number if isinstance(number, int) else float(f"{number:.7g}")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e300 else None


def _list(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    return value if isinstance(value, list) else []


def _count(rows: Sequence[Row]) -> int:
    return max((len(_list(row, "constraints")) for row in rows), default=0)


def _json(path: Path, name: str, said: list[str]) -> Row | None:
    """An object from a file; None where there is none, and a word in `said` if it is damaged."""
    try:
        found = json.loads(inside(path, name).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        said.append(f"{name} cannot be read: {error}")
        return None
    if not isinstance(found, dict):
        said.append(f"{name} cannot be read: it holds no object")
        return None
    return found


def _settings(path: Path, said: list[str]) -> dict[str, str]:
    """config.toml as "section.key" -> text."""
    try:
        tree = tomllib.loads(inside(path, "config.toml").read_text())
    except (OSError, ValueError, RecursionError) as error:
        said.append(f"config.toml cannot be read: {error}")
        return {}
    return dict(_leaves(tree, ""))


def _leaves(tree: Any, where: str) -> Iterable[tuple[str, str]]:
    if isinstance(tree, dict):
        items: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, list) and tree and isinstance(tree[0], dict):
        items = enumerate(tree)
    else:
        yield where, tree if isinstance(tree, str) else json.dumps(tree, default=str)
        return
    for key, value in items:
        yield from _leaves(value, f"{where}.{key}" if where else str(key))


def _plain(value: Any) -> Any:
    """The same without numbers that JSON does not have."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _sites(path: Path) -> list[Row]:
    """What every site of a deployed run took and sent, and its seconds, over all rounds."""
    total: dict[str, list[float]] = {}
    for row in read_lines(path, "sites.jsonl"):
        sites = row.get("sites")
        for name, tally in sites.items() if isinstance(sites, dict) else ():
            numbers = [_number(part) or 0.0 for part in tally] if isinstance(tally, list) else []
            if len(numbers) >= 3:
                old = total.get(str(name), [0, 0.0, 0.0, 0.0])
                total[str(name)] = [a + b for a, b in zip(old, [1, *numbers[:3]], strict=True)]
    keys = ("rounds", "seconds", "bytes_down", "bytes_up")
    return [{"name": n, **dict(zip(keys, sums, strict=True))} for n, sums in total.items()]


def _picture(path: Path, name: str) -> str | None:
    """A PNG as a data address."""
    try:
        data = inside(path, name).read_bytes()
    except OSError:
        return None
    if len(data) > PICTURE or not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    return "data:image/png;base64," + base64.b64encode(data).decode()
