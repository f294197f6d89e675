"""How far runs of two versions of the code differ that have the same settings and seeds."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedssca.run.config import render
from fedssca.studies.reproduce.measure import Measured

__all__ = ["agreement", "carried_on", "in_words"]

Row = dict[str, Any]
TIMES = ("seconds",)
"""What differs between any two runs."""
PLACES = {"data.dir", "data.path"}
"""Settings that decide no number."""


def carried_on(before: Row, found: Mapping[str, Measured], code: str) -> Row:
    """Return what a page that replaces another says of that one: {"agreement": ...} or nothing.

    A page of the same code says again what it said.
    """
    if before["fingerprint"] == code:
        return {key: before[key] for key in ("agreement",) if key in before}
    seen = agreement(before, found, before["fingerprint"])
    return {"agreement": seen} if seen else {}


def agreement(before: Row, found: Mapping[str, Measured], code: str) -> Row | None:
    """Compare the ends of runs with those in the NAME.json of another code; None if none match.

    `code` is the code that the reader of the page is told: that of the runs that the page is
    compared with. The training costs are compared as shares of the larger one.
    """
    here = {name: m for name, m in found.items() if m.runs}
    pairs: dict[str, list[tuple[Row, Row]]] = {}
    for curve in before.get("curves", ()):
        measured = here.get(curve["label"])
        if measured is None or not same_run(curve["config"], render(measured.curve.config)):
            continue
        ends = [end["last"] for end in curve["ends"]]
        pairs[curve["label"]] = list(
            zip(ends, (run["rows"][-1] for run in measured.runs), strict=False)
        )
    runs = [pair for ends in pairs.values() for pair in ends]
    if not runs:
        return None
    means = [
        np.array([[row["train_cost"] for row in pair] for pair in curve]).mean(axis=0)
        for curve in pairs.values()
        if curve[1:]
    ]
    seen: Row = {
        "code": code,
        "runs": len(runs),
        "equal": sum(_numbers(one) == _numbers(two) for one, two in runs),
        "largest": max(_apart(one["train_cost"], two["train_cost"]) for one, two in runs),
    }
    return seen | ({"largest_of_means": max(_apart(*m) for m in means)} if means else {})


def same_run(one: str, two: str) -> bool:
    """Whether two runs as TOML agree in every setting that both versions of the code know."""
    left, right = (_settings(tomllib.loads(text)) for text in (one, two))
    return all(left[key] == right[key] for key in (left.keys() & right.keys()) - PLACES)


def _settings(table: Row, above: str = "") -> Row:
    """Return the settings of a run as one table: {"algorithm.rho.a": 0.9, ...}."""
    out: Row = {}
    for key, value in table.items():
        name = f"{above}{key}"
        out |= _settings(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return out


def in_words(seen: Row) -> str:
    """Return an agreement in words."""
    same = f"{seen['equal']} of the {seen['runs']} runs that both have end with equal numbers"
    if seen["equal"] == seen["runs"]:
        return (
            f"Compared with code {seen['code']}: all {seen['runs']} runs that both have end with "
            "equal numbers."
        )
    text = (
        f"Compared with code {seen['code']}: {same}; the final training costs of the others differ "
        f"by at most {seen['largest']:.2%}"
    )
    if "largest_of_means" in seen:
        text += f", their means over such runs of a curve by at most {seen['largest_of_means']:.2%}"
    return f"{text}."


def _apart(one: float, two: float) -> float:
    return float(abs(one - two) / (max(abs(one), abs(two)) or 1.0))


def _numbers(row: Row) -> Row:
    return {key: value for key, value in row.items() if key not in TIMES}
