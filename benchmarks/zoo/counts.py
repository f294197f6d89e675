"""The tables of the zoo that docs/constraints.md shows."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from problems import CASES
from records import Record
from rivals import TRIALS
from summary import PRICE, RIVALS, References, Runs, at_optimum, chosen, compared, outcomes

__all__ = ["tables"]

WAYS = ("default", "exact-calibrated", "exact-printed", "steered")


def tables(records: Sequence[Record], names: Sequence[str]) -> dict[str, Any]:
    """The counts of the methods that need no tuning, and the default beside the tuned ones."""
    found, known = chosen(_tuned(records), names), References()
    ways = [way for way in WAYS if way in found]
    columns = [_counts(found[way], known) for way in ways]
    rows = [[title, *(column[title] for column in columns)] for title in columns[0]]
    heads = ["problem", "default", "best of the others", "difference"]
    return {
        "counts": {"columns": ["", *ways], "rows": rows},
        "rivals": {"columns": heads, "rows": _compared(found, known)},
    }


def _tuned(records: Sequence[Record]) -> list[Record]:
    """The records without those of methods whose trials on a problem were not all run."""
    trials: Counter[tuple[str, str]] = Counter()
    for record in records:
        trials[record["case"], record["method"]] += record["seed"] == 0
    few = {pair for pair, count in trials.items() if pair[1] in RIVALS and count < TRIALS}
    return [record for record in records if (record["case"], record["method"]) not in few]


def _counts(cases: dict[str, list[Record]], known: References) -> dict[str, str]:
    found = outcomes(cases, known)
    runs, said, errors = found.runs, found.said, [error for error, _ in found.errors]
    return {
        "problems, runs": f"{len(cases)}, {len(runs)}",
        "not a number, or an error": f"{len(said['failed'])}",
        "limits kept on the training rows": f"{len(said['kept'])} of {found.feasible}",
        "limits that cannot be kept: said": f"{len(said['said'])} of {found.impossible}",
        "objective above exact optima": _spread(found.gaps(known, True)),
        "objective above the best known points": _spread(found.gaps(known, False)),
        f"prices shown that are within {PRICE:.0%}": (
            f"{sum(error <= PRICE for error in errors)} of {len(errors)}"
        ),
        "verdict: converged": f"{sum(bool(run.get('converged')) for run in runs)} of {len(runs)}",
    }


def _spread(gaps: Sequence[tuple[float, Record]]) -> str:
    if not gaps:
        return "-"
    numbers = [value for value, _ in gaps]
    return f"median {100 * statistics.median(numbers):.2f} %, worst {100 * max(numbers):.1f} %"


def _compared(found: Runs, known: References) -> list[list[Any]]:
    """The problems on which the default is not within 1 % of an exact optimum."""
    rows: list[tuple[float, list[Any]]] = []
    for name, runs in found["default"].items():
        if not CASES[name].feasible or at_optimum(runs, known[name]):
            continue
        if beside := compared(found, name, runs, known[name]):
            best = f"{beside.other:.4g} ({beside.rival})"
            cells = [f"`{name}`", f"{beside.own:.4g}", best, f"{100 * beside.behind:+.1f} %"]
            rows.append((beside.behind, cells))
    return [cells for _, cells in sorted(rows)]
