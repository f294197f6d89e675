"""What is shown of the limits of a run: the statuses of the entries of a certificate.

certified       it holds on new rows, with the confidence that was asked for
kept            it holds on the training rows and on the held-out rows
broken          it does not hold on the training rows
held-out        it holds on the training rows, but not on the held-out rows
unchecked       it holds on the training rows, and no held-out row can tell more
part            one of the parts whose largest loss is the objective: it has no limit
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedssca.problem.limits import limit_words

__all__ = ["STATUSES", "limits_kept", "promise_words", "stated_entries"]

Row = dict[str, Any]
STATUSES = ("certified", "kept", "unchecked", "held-out", "broken")
"""From what is shown to hold to what is shown not to."""


def stated_entries(certificate: Row) -> list[Row]:
    """The entries of a certificate; one that is older has its constraints only."""
    if "limits" in certificate:
        entries: list[Row] = certificate["limits"]
        return entries
    return [
        entry
        | {"title": entry["name"], "low": None, "high": entry["limit"]}
        | {"status": "unchecked" if entry["feasible"] else "broken"}
        for entry in certificate["constraints"]
    ]


def limits_kept(entries: Sequence[Row]) -> tuple[int, int, str]:
    """How many limits hold on the training rows, of how many, and the worst of their statuses."""
    found = [entry for entry in entries if entry["status"] in STATUSES]
    worst = max((entry["status"] for entry in found), key=STATUSES.index, default="kept")
    return sum(entry["feasible"] for entry in found), len(found), worst


def promise_words(entry: Row) -> str:
    """What is promised of a limit for new rows, in its own units; empty if nothing was asked for.

    If the whole statement is not certified, it is the bound of this limit taken alone.

    >>> promise_words({"promise": {"low": None, "high": 0.1, "certified": False}})
    '≤ 0.1 alone'
    """
    promise = entry.get("promise")
    if promise is None:
        return ""
    low, high = (
        None if end is None else float(f"{end:.4g}") for end in (promise["low"], promise["high"])
    )
    words = limit_words(low, high)
    return words if promise["certified"] or words == "-" else f"{words} alone"
