"""Comparisons of a recorded run with the reference, and the line that is printed for it."""

from __future__ import annotations

from typing import Any

from problems import Case

HEAD = (
    f"{'case':24} {'method':16} seed {'kept':6} {'objective':>10} {'gap':>8} {'price':>7} "
    f"{'KKT':>8} conv. rounds seconds  note"
)


def verdict(record: dict[str, Any], case: Case) -> str:
    """ "kept", "broken", "failed"; for limits that cannot be kept "said" or "silent"."""
    if "failed" in record:
        return "failed"
    if case.feasible:
        return "kept" if record["kept"] else "broken"
    return "said" if not record["kept"] and record["notes"] else "silent"


def gap(record: dict[str, Any], known: dict[str, Any]) -> float | None:
    """(objective - reference) / |reference|."""
    if "failed" in record or "objective" not in known:
        return None
    best = known["objective"]
    return (record["objective"] - best) / max(abs(best), 1e-9)


def price_error(record: dict[str, Any], known: dict[str, Any]) -> float | None:
    """The largest relative error of a shown price of an active limit; None if there is none.

    A limit counts as active if its price is at least 5 % of the largest one.
    """
    true = known.get("prices")
    if "failed" in record or not true or not max(true) > 0:
        return None
    pairs = zip(true, record["prices"], strict=True)
    least = 0.05 * max(true)
    errors = [abs(p - t) / t for t, p in pairs if t >= least and p is not None]
    return max(errors, default=None)


def line(record: dict[str, Any], case: Case, known: dict[str, Any]) -> str:
    start = f"{record['case']:24} {record['method']:16} {record['seed']:4} "
    start += f"{verdict(record, case):6}"
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
