"""A `Result` as a figure, as a table of pandas, and as HTML in a notebook."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedssca.errors import UserError
from fedssca.evaluate.verdicts import limits_kept, promise_words, stated_entries
from fedssca.problem.limits import limit_words
from fedssca.problem.task_kinds import main_metric
from fedssca.run.rows import flat
from fedssca.system import pip_install

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from fedssca.run.result import Result

__all__ = ["figure", "frame", "html"]

HEADINGS = ("limit", "", "training", "held out", "new rows", "margin", "multiplier", "shown by")
SIGNS = {
    "certified": "✓ certified for new rows",
    "kept": "✓ training and held-out rows",
    "unchecked": "○ training rows only",
    "held-out": "! training rows, but not held-out rows",
    "broken": "✗ broken",
    "part": "part of the objective",
}
MOST = 30
"""The largest number of limits that a notebook shows."""


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
        raise UserError(f"to_pandas() needs pandas: {pip_install('pandas')}") from None
    names = [entry["name"] for entry in result.certificate["constraints"]]
    return pandas.DataFrame([flat(row, names, "_") for row in result.rows])


def html(result: Result) -> str:
    """Return feasibility, certificate, notes and a small picture as HTML that loads nothing."""
    entries = stated_entries(result.certificate)
    picture = io.BytesIO()
    figure({"result": result}).savefig(picture, format="png", dpi=60)
    data = base64.b64encode(picture.getvalue()).decode()
    more = len(entries) - MOST
    return (
        f"<div><p>{_summary(result)}</p>"
        + (_table(entries[:MOST]) if entries else "")
        + (f"<p>and {more} more in certificate[&#x27;limits&#x27;]</p>" if more > 0 else "")
        + "".join(f"<p>{escape(note)}</p>" for note in result.notes)
        + f'<img alt="curves over the rounds" src="data:image/png;base64,{data}"></div>'
    )


def _summary(result: Result) -> str:
    row, (kept, count, _) = result.final, limits_kept(stated_entries(result.certificate))
    measured, metric, _ = main_metric(row)
    said = {"train_cost": "training cost", measured: f"test {metric.words}", "norm_sq": "|w|²"}
    numbers = [f"{label} {row[key]:.4g}" for key, label in said.items() if key in row]
    verdict = f"<b>{kept} of {count} limits kept</b> on the full training data; " if count else ""
    done = "converged" if result.converged else "not converged"
    return f"{verdict}{', '.join(numbers)}, {done} after {row['round'] + 1} rounds"


def _table(entries: list[dict[str, Any]]) -> str:
    def line(entry: dict[str, Any]) -> str:
        held = entry.get("test_value")
        cells = (
            limit_words(entry["low"], entry["high"]),
            "-" if entry["value"] is None else f"{entry['value']:.4f}",
            "-" if held is None else f"{held:.4f}{_interval(entry)}",
            promise_words(entry) or "-",
            "-" if entry["margin"] is None else f"{entry['margin']:.2g}",
            "withheld" if entry["multiplier"] is None else f"{entry['multiplier']:.4g}",
            SIGNS[entry["status"]],
        )
        columns = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        return f"<tr><th>{escape(entry['title'])}</th>{columns}"

    head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    return f"<table><tr>{head}</tr>{'</tr>'.join(map(line, entries))}</tr></table>"


def _interval(entry: dict[str, Any]) -> str:
    """The interval of the value on held-out rows, if there is one."""
    if "test_interval" not in entry:
        return ""
    low, high = entry["test_interval"]
    return f" ({low:.3g} to {high:.3g})"
