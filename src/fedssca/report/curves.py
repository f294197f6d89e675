"""Curves of runs as one picture: they read rows and results, never live objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

__all__ = ["COLOURS", "DASHES", "draw_curves", "short_names", "with_worst"]

Row = dict[str, Any]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Seven that eyes of every kind tell apart (Okabe and Ito)."""
DASHES = ("-", "--", "-.")


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


def short_names(paths: Iterable[Path]) -> list[str]:
    """The folders' names; those that begin with the first one's name show only the rest."""
    first, *others = (path.name for path in paths)
    rest = ["…" + n.removeprefix(first) if n.startswith(first) else n for n in others]
    return [first, *rest]
