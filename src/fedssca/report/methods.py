"""Trainings of several methods on several problems, as pages compare them.

Trainings come from run directories, from the folders of `fedssca tune`, and from folders with a
file results.jsonl, one training per line, such as those of benchmarks/zoo. Two runs have the same
problem if their data, model, objective and limits are the same.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedssca.report.gather import (
    LARGEST_OBJECT,
    LARGEST_ROWS,
    read_file,
    read_object,
    read_row,
    setting_leaves,
)
from fedssca.report.limits import number
from fedssca.run.schema.problem import ABOUT_LIMITS

__all__ = ["folder_trainings", "named_problems", "run_training", "runs_trainings"]

Row = dict[str, Any]
MOST = 20_000
"""Trainings that a page compares."""
PROBLEM = ("data.", "model.", "problem.")
METHOD_KEYS = ("problem.penalty",)
"""Keys of the problem's section that are settings of methods."""
LIMIT_KEYS = tuple(f"problem.{key}" for key in ABOUT_LIMITS)
OBJECTIVES = {"norm": "smallest network", "loss": "least loss"}
AT_LEAST = ("recall", "precision")


def runs_trainings(paths: Sequence[Path], names: Sequence[str]) -> list[Row]:
    """The trainings of these runs, with the titles of their problems."""
    found = [run_training(path, name) for path, name in zip(paths, names, strict=True)]
    return named_problems([each for each in found if each is not None])


def run_training(path: Path, name: str) -> Row | None:
    """The training in a run directory; None if its configuration cannot be read."""
    try:
        tree = tomllib.loads(read_file(path, "config.toml", LARGEST_OBJECT).decode())
    except (OSError, ValueError, RecursionError):
        return None
    result = read_object(path, "result.json", [])
    seed = _section(tree, "run").get("seed")
    entry = _problem_of(tree) | {"method": _method(tree), "run": name, "seed": seed}
    if result is None:
        return entry | {"state": "unfinished"}
    values = [number(value) for value in _list(result, "constraints")]
    return entry | _outcome(
        kept=result.get("feasible") is True,
        values=[value for value in values if value is not None],
        objective=result.get("objective"),
        prices=[each.get("multiplier") for each in _limits(result)],
        seconds=result.get("seconds"),
        sent=[result.get(key) for key in ("bytes_up", "bytes_down", "bytes_peer")],
    )


def folder_trainings(path: Path) -> list[Row]:
    """The trainings of a search or of a benchmark in a folder; none if it holds neither."""
    if (path / "trials.jsonl").is_file():
        return _search(path)
    if (path / "results.jsonl").is_file():
        return _records(path)
    return []


def named_problems(trainings: Sequence[Row]) -> list[Row]:
    """Trainings with titles: problems of the same title get the settings in which they differ."""
    settings: dict[str, dict[str, dict[str, str]]] = {}
    for entry in trainings:
        settings.setdefault(entry["title"], {})[entry["problem"]] = entry.get("settings", {})
    titles: dict[str, str] = {}
    for title, problems in settings.items():
        keys = sorted({key for own in problems.values() for key in own})
        differ = [key for key in keys if len({own.get(key) for own in problems.values()}) > 1]
        for problem, own in problems.items():
            more = [f"{key.partition('.')[2]} {own.get(key, '-')}" for key in differ[:4]]
            titles[problem] = " · ".join([title, *more])
    return [
        {key: value for key, value in entry.items() if key != "settings"}
        | {"title": titles[entry["problem"]]}
        for entry in trainings[:MOST]
    ]


def _problem_of(tree: Row) -> Row:
    """Which problem a configuration states: a key, the key without its limits, and a title."""
    leaves = dict(setting_leaves(tree))
    own = {
        key: value
        for key, value in leaves.items()
        if key.startswith(PROBLEM) and key not in METHOD_KEYS
    }
    free = {key: value for key, value in own.items() if not key.startswith(LIMIT_KEYS)}
    data, problem = _section(tree, "data"), _section(tree, "problem")
    objective = str(problem.get("objective", ""))
    limits = [_limit_words(each) for each in _list(problem, "constraint") if isinstance(each, dict)]
    named = Path(str(data.get("path") or "")).stem or str(data.get("name") or "data")
    parts = [named, OBJECTIVES.get(objective, objective.replace("_", " ")), *limits]
    return {
        "problem": json.dumps(own, sort_keys=True),
        "without": json.dumps(free, sort_keys=True),
        "limited": bool(limits),
        "settings": {key: own[key] for key in own if not key.startswith("problem.constraint")},
        "title": " · ".join(part for part in parts if part) + ("" if limits else " · no limits"),
    }


def _limit_words(limit: Row) -> str:
    columns = [limit.get("column"), *_list(limit, "columns")]
    where = [str(column) for column in columns if column]
    sign = "≥" if limit.get("kind") in AT_LEAST else "≤"
    of = f" by {', '.join(where)}" if where else ""
    each = ", each client" if limit.get("per_client") is True else ""
    return f"{str(limit.get('kind', '')).replace('_', ' ')}{of}{each} {sign} {limit.get('limit')}"


def _method(tree: Row) -> str:
    settings = _section(tree, "algorithm")
    name, rule = str(settings.get("name", "")), str(settings.get("multipliers") or "")
    return f"{name}, {rule}" if name == "ssca" and rule not in ("", "corrected") else name


def _outcome(
    *,
    kept: bool,
    values: Iterable[float],
    objective: Any,
    prices: Iterable[Any],
    seconds: Any,
    sent: Iterable[Any] = (),
) -> Row:
    known = [price for price in map(number, prices) if price is not None]
    counted = [count for count in map(number, sent) if count is not None]
    objective = number(objective)
    unknown = objective is None or not math.isfinite(objective)
    return {
        "state": "failed" if unknown else "kept" if kept else "broken",
        "over": max([0.0, *values]),
        "objective": None if unknown else objective,
        "price": max(known, default=None),
        "seconds": number(seconds),
        "bytes": sum(counted) if counted else None,
    }


def _search(path: Path) -> list[Row]:
    """The trials of `fedssca tune`. They are judged on rows that are held out of the training."""
    told = read_object(path, "tune.json", []) or {}
    tree: Row = {}
    with suppress(ValueError, TypeError, RecursionError):
        tree = tomllib.loads(told.get("config", ""))
    known = _problem_of(tree) if tree else {"limited": True}
    title, key = f"trials in {path.name}", f"search {path.name}"
    problem = {
        **known,
        "problem": key,
        "without": key,
        "title": f"{known['title']} · {title}" if tree else title,
        "seed": None,
    }
    return [
        problem
        | {"method": str(line.get("method")), "run": None}
        | _outcome(
            kept=number(line.get("violation")) == 0,
            values=[number(line.get("violation")) or 0.0],
            objective=line.get("objective"),
            prices=[],
            seconds=line.get("seconds"),
        )
        for line in _lines(path, "trials.jsonl", "method")
    ]


def _records(path: Path) -> list[Row]:
    """Lines with case, method, kept, objective; references.json may tell the best known value."""
    known = read_object(path, "references.json", []) or {}
    found = []
    for line in _lines(path, "results.jsonl", "case"):
        case = str(line["case"])
        reference = known.get(case)
        reference = reference if isinstance(reference, dict) else {}
        problem = f"{path.name}/{case}"
        entry = {"problem": problem, "without": problem, "title": case, "limited": True}
        entry |= {"method": str(line.get("method")), "run": None, "seed": line.get("seed")}
        outcome = _outcome(
            kept=line.get("kept") is True,
            values=[v for v in map(number, _list(line, "constraints")) if v is not None],
            objective=line.get("objective"),
            prices=_list(line, "prices"),
            seconds=line.get("seconds"),
        )
        best = {"best": number(reference.get("objective")), "unit": number(reference.get("unit"))}
        found.append(entry | outcome | best)
    return found


def _lines(path: Path, name: str, key: str) -> list[Row]:
    try:
        text = read_file(path, name, LARGEST_ROWS)
    except OSError:
        return []
    return [row for line in text.splitlines() if (row := read_row(line, key)) is not None]


def _limits(result: Row) -> list[Row]:
    certificate = result.get("certificate")
    found = _list(certificate, "limits") if isinstance(certificate, dict) else []
    return [entry for entry in found if isinstance(entry, dict)]


def _section(tree: Row, name: str) -> Row:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _list(row: Row, name: str) -> list[Any]:
    found = row.get(name)
    return found if isinstance(found, list) else []
