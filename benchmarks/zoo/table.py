"""Comparisons of a recorded run with the reference, and the line that is printed for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from problems import CASES
from records import Record

Known = dict[str, Any]
"""A reference: objective, prices, and whether it is exact; {} if there is none."""
ACTIVE = 0.05
"""A limit counts as active if its price is at least this share of the largest one."""
HEAD = (
    f"{'case':24} {'method':16} seed {'kept':6} {'objective':>10} {'gap':>8} {'price':>7} "
    f"{'KKT':>8} conv. rounds seconds  note"
)


def verdict(record: Record) -> str:
    """ "kept", "broken", "failed"; for limits that cannot be kept "said" or "silent"."""
    if "failed" in record:
        return "failed"
    if CASES[record["case"]].feasible:
        return "kept" if record["kept"] else "broken"
    return "said" if not record["kept"] and record["notes"] else "silent"


def gap(record: Record, known: Known) -> float | None:
    """(objective - reference) / |reference|, or / a unit of the problem if that is larger."""
    if "failed" in record or "objective" not in known:
        return None
    best = known["objective"]
    return (record["objective"] - best) / max(abs(best), known.get("unit", 1e-9))


def price_error(record: Record, known: Known) -> float | None:
    """The largest relative error of a shown price of an active limit; None if there is none."""
    true = known.get("prices")
    if "failed" in record or not true or not max(true) > 0:
        return None
    pairs = zip(true, record["prices"], strict=True)
    errors = [abs(p - t) / t for t, p in pairs if t >= ACTIVE * max(true) and p is not None]
    return max(errors, default=None)


def score(record: Record) -> float:
    """The objective of a run that kept its limits, else infinity."""
    return record["objective"] if verdict(record) == "kept" else math.inf


def best_trial(tried: Sequence[Record]) -> Record:
    """The lowest objective among the kept; if none is kept, the one closest to it."""

    def order(record: Record) -> tuple[float, float]:
        broken = max(record.get("constraints") or [0.0]) if "failed" not in record else math.inf
        return score(record), broken

    return min(tried, key=order)


def line(record: Record, known: Known) -> str:
    method = record["method"] + (f" #{record['trial']}" if "trial" in record else "")
    start = f"{record['case']:24} {method:16} {record['seed']:4} {verdict(record):6}"
    if "failed" in record:
        return f"{start} {record['failed'][:90]} ({record['seconds']:.0f} s)"
    difference, error = gap(record, known), price_error(record, known)
    mark = "" if known.get("exact", True) else "*"
    shown = "" if difference is None else f"{100 * difference:.2f}%{mark}"
    price = "" if error is None else f"{100 * error:.0f}%"
    if error is None and any(p is None for p in record["prices"]):
        price = "none"
    done = {True: "yes", False: "no", None: "-"}[record["converged"]]
    note = record["notes"][0][:60] if record["notes"] else ""
    return (
        f"{start} {record['objective']:10.5g} {shown:>8} {price:>7} {record['kkt']:8.2g} {done:5} "
        f"{record['rounds']:6} {record['seconds']:7.1f}  {note}"
    )
