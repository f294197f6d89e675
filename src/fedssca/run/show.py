"""A `Result` as a figure, as a table of pandas, and as HTML in a notebook."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedssca.errors import UserError
from fedssca.run.rows import flat

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from fedssca.run.result import Result

__all__ = ["figure", "frame", "html"]

HEADINGS = ("constraint", "value", "limit", "margin", "held out", "multiplier")
MOST = 30
"""The largest number of constraints that a notebook shows."""


def figure(results: Mapping[str, Result]) -> Figure:
    """Draw the curves of results, by name, in one figure, with the limits of the first result."""
    from fedssca.run.curves import curves

    first = next(iter(results.values()))
    limits = [e["limit"] for e in first.certificate["constraints"] if e["name"] == "loss"]
    return curves(
        {Path(name): result.rows for name, result in results.items()},
        limits,
        {Path(name): result.final for name, result in results.items()},
    )


def frame(result: Result) -> pandas.DataFrame:
    """Return the rows as a table, with one line per evaluated round and one column per number."""
    try:
        import pandas
    except ImportError:
        raise UserError("to_pandas() needs pandas: pip install 'fedssca[pandas]'") from None
    names = [entry["name"] for entry in result.certificate["constraints"]]
    return pandas.DataFrame([flat(row, names, "_") for row in result.rows])


def html(result: Result) -> str:
    """Return feasibility, certificate, notes and a small picture as HTML that loads nothing."""
    entries = result.certificate["constraints"]
    picture = io.BytesIO()
    figure({"result": result}).savefig(picture, format="png", dpi=60)
    data = base64.b64encode(picture.getvalue()).decode()
    more = len(entries) - MOST
    return (
        f"<div><p>{_summary(result)}</p>"
        + (_table(entries[:MOST]) if entries else "")
        + (f"<p>and {more} more in certificate[&#x27;constraints&#x27;]</p>" if more > 0 else "")
        + "".join(f"<p>{escape(note)}</p>" for note in result.notes)
        + f'<img alt="curves over the rounds" src="data:image/png;base64,{data}"></div>'
    )


def _summary(result: Result) -> str:
    row, count = result.final, len(result.certificate["constraints"])
    kept = sum(entry["feasible"] for entry in result.certificate["constraints"])
    said = {"train_cost": "training cost", "test_accuracy": "test accuracy", "norm_sq": "|w|²"}
    numbers = [f"{label} {row[key]:.4g}" for key, label in said.items() if key in row]
    verdict = f"<b>{kept} of {count} limits kept</b> on the full training data; " if count else ""
    done = "converged" if result.converged else "not converged"
    return f"{verdict}{', '.join(numbers)}, {done} after {row['round'] + 1} rounds"


def _table(entries: list[dict[str, Any]]) -> str:
    def line(entry: dict[str, Any]) -> str:
        held = entry.get("test_rate")
        numbers = (
            f"{entry['value']:.4f}" if entry["feasible"] else f"<b>{entry['value']:.4f}</b> broken",
            f"{entry['limit']:g}",
            f"{entry['margin']:.2g}",
            "-" if held is None else f"{held:.4f}",
            "withheld" if entry["multiplier"] is None else f"{entry['multiplier']:.4g}",
        )
        return f"<tr><th>{escape(entry['name'])}</th>{''.join(f'<td>{n}</td>' for n in numbers)}"

    head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    return f"<table><tr>{head}</tr>{'</tr>'.join(map(line, entries))}</tr></table>"
