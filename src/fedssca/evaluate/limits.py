"""Every limit as it was stated: its value on training and on held-out rows, and what that shows.

`evaluate/verdicts.py` lists the statuses that a limit can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedssca.evaluate.estimate import LEVEL, Estimate
from fedssca.evaluate.tally import Tally
from fedssca.problem.limits import StatedLimit, limit_words, stated
from fedssca.problem.problem import Problem

__all__ = ["grain", "held_out_notes", "limit_entries", "limits_on", "noised_limits"]

Row = dict[str, Any]
MOST_COUNTS = 4
"""The largest number of ratios whose counts are written out in a note."""


def limit_entries(problem: Problem, constraints: Sequence[Row], tally: Tally) -> list[Row]:
    """One entry per stated limit; `constraints` are the certificate's entries of their sides."""
    return [_entry(problem, limit, constraints, tally) for limit in stated(problem.bounds)]


def noised_limits(problem: Problem, constraints: Sequence[Row], row: Row) -> list[Row]:
    """One entry per stated limit, from a row whose values carry privacy noise.

    There are no counts and no intervals; values on held-out rows carry noise too.
    """
    found = []
    for limit in stated(problem.bounds):
        sides = [constraints[m] for m in limit.constraints]
        objective = any(m + 1 in problem.worst for m in limit.constraints)
        low, high = (None, None) if objective else (limit.low, limit.high)
        limit = limit._replace(low=low, high=high)
        value, test = (row.get(f"{part}_{limit.quantity}") for part in ("train", "test"))
        out: Row = {
            "name": limit.quantity,
            "title": limit.title,
            "low": low,
            "high": high,
            "value": value,
            "margin": None if value is None or objective else -limit.excess(value),
            "feasible": all(side["feasible"] for side in sides),
            "active": any(side["active"] for side in sides),
            "multiplier": None,
            "relaxing_by_0.01_buys": None,
            "constraints": list(limit.constraints),
        }
        if test is None:
            out["unchecked"] = "no value on held-out rows"
        else:
            out |= {"test_value": test, "test_feasible": limit.excess(test) <= 0}
        out["status"] = "part" if objective else _status(out)
        found.append(out)
    return found


def limits_on(problem: Problem, tally: Tally) -> list[Row]:
    """Every stated limit on the held-out rows of a tally: the quantity, its counts, kept or not."""
    found = []
    for limit in stated(problem.bounds):
        if any(m + 1 in problem.worst for m in limit.constraints):
            continue
        out: Row = {
            "name": limit.quantity,
            "title": limit.title,
            "low": limit.low,
            "high": limit.high,
        }
        test = tally.estimate(tally.sums.test, limit.quantity)
        if test is None or test.value is None:
            out["unchecked"] = _why_unchecked(limit, tally)
        else:
            told = {n.removeprefix("test_"): v for n, v in _held_out(limit, test).items()}
            out |= {"value": told.pop("value"), "kept": told.pop("feasible"), **told}
        found.append(out)
    return found


def grain(problem: Problem, tally: Tally) -> np.ndarray:
    """By how much one training row changes each F_m that counts rows; 0 where F_m does not."""
    found = np.zeros(problem.constraints)
    for m in problem.stepwise:
        there = tally.estimate(tally.sums.train, problem.bounds[m].quantity)
        if there is not None and there.value is not None:
            found[m] = np.max(np.abs(there.weights) / there.sums[:, 1])
    return found


def held_out_notes(entries: Sequence[Row]) -> list[str]:
    """What is to be said of limits that held-out rows break."""
    return [entry["note"] for entry in entries if "note" in entry]


def _entry(problem: Problem, limit: StatedLimit, constraints: Sequence[Row], tally: Tally) -> Row:
    sides = [constraints[m] for m in limit.constraints]
    prices = [side["multiplier"] for side in sides]
    price = None if None in prices else float(sum(prices))
    objective = any(m + 1 in problem.worst for m in limit.constraints)
    if objective:
        limit = limit._replace(low=None, high=None)
    train = tally.estimate(tally.sums.train, limit.quantity)
    value = None if train is None else train.value
    out: Row = {
        "name": limit.quantity,
        "title": limit.title,
        "low": limit.low,
        "high": limit.high,
        "value": value,
        "margin": None if value is None or objective else -limit.excess(value),
        "feasible": all(side["feasible"] for side in sides),
        "active": any(side["active"] for side in sides),
        "multiplier": price,
        "relaxing_by_0.01_buys": None if price is None else 0.01 * price,
        "constraints": list(limit.constraints),
    }
    if train is not None and value is not None:
        out["counts"] = train.counts
    test = tally.estimate(tally.sums.test, limit.quantity)
    if test is None or test.value is None:
        out["unchecked"] = _why_unchecked(limit, tally)
    else:
        out |= _held_out(limit, test)
    if objective:
        return out | {"status": "part"}
    out["status"] = _status(out)
    if out["status"] == "held-out" and test is not None:
        out["note"] = _note(limit, out, test)
    return out


def _status(entry: Row) -> str:
    kept = entry.get("test_feasible")
    if not entry["feasible"]:
        return "broken"
    if kept is None:
        return "unchecked"
    return "kept" if kept else "held-out"


def _held_out(limit: StatedLimit, test: Estimate) -> Row:
    """The quantity on held-out rows, its counts, and an interval if there are rows enough."""
    value = test.value
    assert value is not None
    # A count that is exactly on its limit keeps it; the ratio is rounded.
    out: Row = {
        "test_value": value,
        "test_counts": test.counts,
        "test_feasible": limit.excess(value) <= 1e-9,
    }
    if (found := test.interval()) is not None:
        out |= {"test_interval": found[0], "interval_level": LEVEL, "interval_kind": found[1]}
    return out


def _why_unchecked(limit: StatedLimit, tally: Tally) -> str:
    if tally.sums.test is None:
        return "there are no held-out rows"
    if limit.client is not None:
        return "held-out rows belong to no client"
    return "no held-out row counts for it"


def _note(limit: StatedLimit, entry: Row, test: Estimate) -> str:
    value = entry["test_value"]
    text = (
        f"{limit.title}: {entry['value']:.4g} on training rows, but {value:.4g} on held-out rows "
        f"({_counts(test)}), outside its limit {limit_words(limit.low, limit.high)} "
        f"by {limit.excess(value):.3g}"
    )
    if "test_interval" not in entry:
        return text + "; too few rows for an interval"
    low, high = entry["test_interval"]
    text += f"; {100 * LEVEL:g} % interval {low:.3g} to {high:.3g} ({entry['interval_kind']})"
    if _reaches_inside(limit, low, high):
        return text + ", so chance alone may explain it"
    return text + ", so it is more than chance"


def _counts(test: Estimate) -> str:
    if test.counted and len(test.sums) <= MOST_COUNTS:
        return " against ".join(f"{k:,} of {n:,}" for k, n in test.counts)
    return " and ".join(f"{round(n):,} rows" for _, n in test.counts[:MOST_COUNTS])


def _reaches_inside(limit: StatedLimit, low: float, high: float) -> bool:
    """Some value between `low` and `high` keeps the limit."""
    return (limit.high is None or low <= limit.high) and (limit.low is None or high >= limit.low)
