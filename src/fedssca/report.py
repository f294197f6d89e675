"""Figures and tables from records: they read rows and results, never live objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["draw_curves", "print_results"]

Row = dict[str, Any]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.")
MOST = 12
"""Constraints shown on screen."""


def draw_curves(
    runs: Mapping[Path, Sequence[Row]],
    limits: Sequence[float],
    file: IO[bytes],
    results: Mapping[Path, Row | None] | None = None,
) -> None:
    """Training cost, test accuracy, |w|^2 and constraints of runs against the round, as a PNG.

    `limits` are limits on the training cost; the side on which limits are kept is shaded. A star
    marks the returned model of each of `results`.
    """
    returned = {
        name: with_worst(result)
        for name, result in zip(short_names(runs), (results or {}).values(), strict=False)
        if result
    }
    from matplotlib.figure import Figure
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter, PercentFormatter

    panels = [
        ("train_cost", "training cost"),
        ("test_accuracy", "test accuracy"),
        ("norm_sq", "|w|²"),
    ]
    if any(row["constraints"] for rows in runs.values() for row in rows):
        panels.append(("worst", "worst constraint: value - limit"))
    figure = Figure(figsize=(4.3 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels))
    for axis, (key, label) in zip(axes, panels, strict=True):
        for number, (name, rows) in enumerate(zip(short_names(runs), runs.values(), strict=True)):
            table = [
                row | {"worst": max(row["constraints"])} if row["constraints"] else row
                for row in rows
            ]
            seen = [(row["round"], row[key]) for row in table if key in row]
            style = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % 3]}
            if seen:
                axis.plot(*zip(*seen, strict=True), label=name, linewidth=1.8, **style)
            final = returned.get(name, {})
            if seen and key in final:
                axis.plot(seen[-1][0], final[key], "*", color=style["color"], markersize=13)
        axis.set(xlabel="communication round", title=label)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    cost, accuracy = axes[:2]
    if len(panels) > 3:
        axes[3].set_yscale("symlog", linthresh=0.01)
        axes[3].axhline(0, color="black", linewidth=1.0)
        axes[3].axhspan(axes[3].get_ylim()[0], 0, color="#009E73", alpha=0.1)
    cost.set_yscale("log")
    cost.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    cost.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    cost.yaxis.set_minor_formatter(NullFormatter())
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0))
    for limit in (limit for limit in limits if limit > 0):
        cost.axhline(limit, color="black", linewidth=1.0, label=f"limit {limit:g}")
        bottom = min(cost.get_ylim()[0], limit / 1.5)
        cost.axhspan(bottom, limit, color="#009E73", alpha=0.1)
        cost.set_ylim(bottom=bottom)
    handles, labels = cost.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(file, format="png", dpi=120)


def with_worst(row: Row) -> Row:
    """The row with its largest F_m, if it has any."""
    return row | {"worst": max(row["constraints"])} if row["constraints"] else row


def print_results(results: Mapping[Path, Row]) -> None:
    """The final numbers of one or more runs, in 80 columns, and where the runs are."""
    names = [escape(name) for name in short_names(results)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("run", overflow="fold")
    for heading in ("train cost", "|w|²", "test acc.", "limits kept", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, result in zip(names, results.values(), strict=True):
        kept = sum(value <= 0 for value in result["constraints"])
        colour = "green" if result["feasible"] else "red"
        accuracy = result.get("test_accuracy")
        table.add_row(
            name,
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
    """Every limit with its value, margin, price and, for rates, the value on held-out rows."""
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
            f"{entry['multiplier']:.4g}",
            f"{entry['relaxing_by_0.01_buys']:.3g}",
        )
    more = len(certificate["constraints"]) - MOST
    table.caption = f"KKT residual {certificate['kkt_residual']:.2g} (0: nothing left to gain)" + (
        f"; {more} more constraints in result.json" if more > 0 else ""
    )
    table.caption_justify = "left"
    return table


def short_names(paths: Iterable[Path]) -> list[str]:
    """The folders' names; those that begin with the first one's name show only the rest."""
    first, *others = (path.name for path in paths)
    rest = ["…" + n.removeprefix(first) if n.startswith(first) else n for n in others]
    return [first, *rest]
