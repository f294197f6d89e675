"""What commands show of finished runs: tables on the screen, and the curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.evaluate.verdicts import limits_kept, promise_words, stated_entries
from fedssca.problem.limits import limit_words
from fedssca.problem.task_kinds import main_metric
from fedssca.run.curves import draw_curves, short_names
from fedssca.run.record import RunDirectory

if TYPE_CHECKING:
    from fedssca.run.config import Config

__all__ = ["certificate_table", "draw_run_curves", "print_results"]

Row = dict[str, Any]
MOST = 12
"""The number of limits that are shown on the screen."""
SIGNS = {
    "certified": "[green]✓[/]",
    "kept": "[green]✓[/]",
    "unchecked": "○",
    "held-out": "[yellow]![/]",
    "broken": "[red]✗[/]",
    "part": " ",
}
COLOURS = {"certified": "green", "kept": "green", "held-out": "yellow", "broken": "red"}
VERDICTS = {
    "certified": "all limits certified for new rows",
    "kept": "all limits kept on training and held-out rows",
    "unchecked": "all limits kept on the training rows; those marked ○ could not be checked on "
    "held-out rows",
    "held-out": "all limits kept on the training rows, but not on held-out rows",
    "broken": "limits broken on the training rows",
}


def print_results(results: Mapping[Path, Row]) -> None:
    """Print the final numbers of runs in 80 columns, and where the runs are."""
    names = [escape(name) for name in short_names(results)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("run", overflow="fold")
    shorts = dict.fromkeys(main_metric(result)[1].short for result in results.values())
    measured = f"test {' or '.join(shorts)}"
    for heading in ("rounds", "train cost", "|w|²", measured, "limits kept", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, result in zip(names, results.values(), strict=True):
        kept, stated, status = limits_kept(stated_entries(result["certificate"]))
        _, metric, value = main_metric(result)
        table.add_row(
            name,
            f"{result['round'] + 1:,}",
            f"{result['train_cost']:.4f}",
            f"{result['norm_sq']:.1f}",
            metric.shown(value),
            coloured(status, f"{kept} of {stated}") if stated else "-",
            f"{result['seconds']:.1f}",
        )
    console = Console(highlight=False)
    console.print(table)
    for name, result in zip(names, results.values(), strict=True):
        entries = stated_entries(result["certificate"])
        if entries:
            console.print(certificate_table(name, result["certificate"]))
        held_out = [entry.get("note") for entry in entries]
        for note in result["notes"]:
            colour = "yellow" if note in held_out or result["feasible"] else "red"
            console.print(f"[{colour}]{name}: {escape(note)}[/]", soft_wrap=True)
    for path in results:
        curves = " (curves.png shows how it went)" if (path / "curves.png").exists() else ""
        console.print(f"saved in {escape(str(path))}{curves}", soft_wrap=True)


def certificate_table(name: str, certificate: Row) -> Table:
    """Return every limit with its values on training and held-out rows, margin and multiplier."""
    entries = stated_entries(certificate)
    _, stated, status = limits_kept(entries)
    verdict = coloured(status, VERDICTS[status]) if stated else "the parts of the objective"
    title = f"{name}: {verdict}"
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=title,
        title_justify="left",
        title_style="none",
    )
    table.add_column("", width=1)
    table.add_column("limit", overflow="fold", min_width=12)
    promised = any("promise" in entry for entry in entries)
    headings = ["", "training", "held out", *["new rows"] * promised, "margin", "multiplier"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in entries[:MOST]:
        price, held = entry["multiplier"], entry.get("test_value")
        table.add_row(
            SIGNS[entry["status"]],
            escape(entry["title"]),
            limit_words(entry["low"], entry["high"]),
            "-" if entry["value"] is None else f"{entry['value']:.4f}",
            "-" if held is None else coloured(_held_out_status(entry), f"{held:.4f}"),
            *[_promised(entry)] * promised,
            "-" if entry["margin"] is None else f"{entry['margin']:.2g}",
            "withheld" if price is None else f"{price:.4g}",
        )
    more = len(entries) - MOST
    table.caption = (
        _how_far(certificate)
        + (f"; {more} more limits in result.json" if more > 0 else "")
        + "".join(f"\n○ not checked: {why}" for why in _reasons(entries))
        + _promise(certificate)
    )
    table.caption_justify = "left"
    return table


def _held_out_status(entry: Row) -> str:
    """Return the status of a limit as far as the held-out rows show it."""
    return entry["status"] if entry["status"] != "certified" else "kept"


def _promised(entry: Row) -> str:
    """Return the bound on new rows, green if it is certified."""
    if "promise" not in entry:
        return "-"
    return coloured(
        "certified" if entry["promise"]["certified"] else "held-out", promise_words(entry)
    )


def _promise(certificate: Row) -> str:
    """Return what is certified for new rows; empty if nothing was asked for."""
    if "certified" not in certificate:
        return ""
    each = " of every client" if certificate["certify"] == "each_site" else ""
    level = f"{100 * certificate['confidence']:g} %"
    if certificate["certified"]:
        return f"\n[green]certified: the limits hold on new rows{each}, with {level} confidence[/]"
    return f"\n[yellow]not certified for new rows{each} at {level} confidence[/]"


def _how_far(certificate: Row) -> str:
    """Return how far the model is from a point at which nothing is left to gain."""
    if certificate["kkt_residual"] is None:
        return "all values carry privacy noise; no KKT residual is computed"
    converged = "converged" if certificate["converged"] else "not converged"
    return f"{converged}: KKT residual {certificate['kkt_residual']:.2g} (0: optimal)"


def coloured(status: str, text: str) -> str:
    """Return the text in the colour of a status."""
    return f"[{COLOURS[status]}]{text}[/]" if status in COLOURS else text


def _reasons(entries: list[Row]) -> list[str]:
    """Return why limits could not be checked on held-out rows, each reason once."""
    found = [entry.get("unchecked") for entry in entries if entry["status"] == "unchecked"]
    return [why for why in dict.fromkeys(found) if why]


def draw_run_curves(plan: dict[Path, Config]) -> None:
    """Draw curves.png of all runs of the plan in the folder of the first one."""
    first, config = next(iter(plan.items()))
    limits = [entry.limit for entry in config.problem.constraint if entry.kind == "loss"]
    rows = {path: RunDirectory.open(path).rows() for path in plan}
    results = {path: RunDirectory.open(path).result() for path in plan}
    RunDirectory.open(first).write(
        "curves.png", lambda file: draw_curves(rows, limits, file, results)
    )
