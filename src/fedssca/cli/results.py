"""What commands show of finished runs: tables on the screen, and the curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.run.curves import draw_curves, short_names
from fedssca.run.record import RunDirectory

if TYPE_CHECKING:
    from fedssca.run.config import Config

__all__ = ["certificate_table", "draw_run_curves", "print_results"]

Row = dict[str, Any]
MOST = 12
"""The number of constraints that are shown on the screen."""


def print_results(results: Mapping[Path, Row]) -> None:
    """Print the final numbers of runs in 80 columns, and where the runs are."""
    names = [escape(name) for name in short_names(results)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("run", overflow="fold")
    for heading in ("rounds", "train cost", "|w|²", "test acc.", "limits kept", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, result in zip(names, results.values(), strict=True):
        kept = sum(value <= 0 for value in result["constraints"])
        colour = "green" if result["feasible"] else "red"
        accuracy = result.get("test_accuracy")
        table.add_row(
            name,
            f"{result['round'] + 1:,}",
            f"{result['train_cost']:.4f}",
            f"{result['norm_sq']:.1f}",
            "-" if accuracy is None else f"{accuracy:.2%}",
            f"[{colour}]{kept} of {len(result['limits'])}[/]" if result["limits"] else "-",
            f"{result['seconds']:.1f}",
        )
    console = Console(highlight=False)
    console.print(table)
    for name, result in zip(names, results.values(), strict=True):
        if result["limits"]:
            console.print(certificate_table(name, result["certificate"]))
        for note in result["notes"]:
            console.print(f"[red]{name}: {escape(note)}[/]", soft_wrap=True)
    for path in results:
        curves = " (curves.png shows how it went)" if (path / "curves.png").exists() else ""
        console.print(f"saved in {escape(str(path))}{curves}", soft_wrap=True)


def certificate_table(name: str, certificate: Row) -> Table:
    """Return every limit with value, margin, multiplier and, for rates, the value on test rows."""
    verdict = "[green]all limits kept[/]" if certificate["feasible"] else "[red]limits broken[/]"
    title = f"{name}: {verdict} on the full training data"
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="none"
    )
    table.add_column("constraint", overflow="fold", min_width=12)
    for heading in ("value", "limit", "margin", "held out", "multiplier", "0.01 buys"):
        table.add_column(heading, justify="right")
    for entry in certificate["constraints"][:MOST]:
        held = entry.get("test_rate")
        table.add_row(
            escape(entry["name"]),
            f"{entry['value']:.4f}" if entry["feasible"] else f"[red]{entry['value']:.4f}[/]",
            f"{entry['limit']:g}",
            f"{entry['margin']:.2g}",
            "-" if held is None else f"{held:.4f}",
            "withheld" if entry["multiplier"] is None else f"{entry['multiplier']:.4g}",
            "-" if entry["multiplier"] is None else f"{entry['relaxing_by_0.01_buys']:.3g}",
        )
    more = len(certificate["constraints"]) - MOST
    converged = "converged" if certificate["converged"] else "not converged"
    table.caption = (
        f"{converged}: KKT residual {certificate['kkt_residual']:.2g} (0: nothing left to gain)"
        + (f"; {more} more constraints in result.json" if more > 0 else "")
    )
    table.caption_justify = "left"
    return table


def draw_run_curves(plan: dict[Path, Config]) -> None:
    """Draw curves.png of all runs of the plan in the folder of the first one."""
    first, config = next(iter(plan.items()))
    limits = [entry.limit for entry in config.problem.constraint if entry.kind == "loss"]
    rows = {path: RunDirectory.open(path).rows() for path in plan}
    results = {path: RunDirectory.open(path).result() for path in plan}
    RunDirectory.open(first).write(
        "curves.png", lambda file: draw_curves(rows, limits, file, results)
    )
