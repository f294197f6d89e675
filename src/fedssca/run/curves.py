"""The curves of runs as one picture, drawn from rows and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fedssca.problem.task_kinds import METRICS, main_metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "DASHES", "TWIN", "curves", "draw_curves", "short_names", "with_worst"]

Row = dict[str, Any]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Seven colours that colour-blind readers can tell apart (Okabe and Ito)."""
DASHES = ("-", "--", "-.")
TWIN = "-unconstrained"
"""What the folder of a run without the limits of another is called beside that of the other."""


def draw_curves(
    runs: Mapping[Path, Sequence[Row]],
    limits: Sequence[float],
    file: IO[bytes],
    results: Mapping[Path, Row | None] | None = None,
) -> None:
    """Write the `curves` of runs as a PNG."""
    curves(runs, limits, results).savefig(file, format="png", dpi=120)


def curves(
    runs: Mapping[Path, Sequence[Row]],
    limits: Sequence[float],
    results: Mapping[Path, Row | None] | None = None,
) -> Figure:
    """Draw training cost, the main metric, |w|^2 and constraints of runs against the round.

    `limits` are limits on the training cost; the feasible side of a limit is shaded. A star marks
    the returned model of each of `results`. Quantities that no run has measured are left out.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = short_names(runs)
    returned = {
        name: with_worst(result)
        for name, result in zip(names, (results or {}).values(), strict=False)
        if result
    }
    tables = [[with_worst(row) for row in rows] for rows in runs.values()]
    measured = {key for rows in tables for row in rows for key in row}
    main, _, _ = main_metric(dict.fromkeys(measured, 0.0))
    shown = {"train_cost", main, "norm_sq", "worst"} & (measured | {"norm_sq"})
    panels = {key: label for key, label in PANELS.items() if key in shown}
    figure = Figure(figsize=(4.3 * len(panels), 4.2), layout="constrained")
    axes = dict(zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True))
    for key, axis in axes.items():
        for number, (name, rows) in enumerate(zip(names, tables, strict=True)):
            seen = [(row["round"], row[key]) for row in rows if key in row]
            style = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % 3]}
            if seen:
                axis.plot(*zip(*seen, strict=True), label=name, linewidth=1.8, **style)
            final = returned.get(name, {})
            if seen and key in final:
                axis.plot(seen[-1][0], final[key], "*", color=style["color"], markersize=13)
        axis.set(xlabel="communication round", title=panels[key])
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    _scales(axes, limits)
    handles, labels = next(iter(axes.values())).get_legend_handles_labels()
    if returned:
        handles.append(Line2D([], [], marker="*", color="black", markersize=11, linestyle="none"))
        labels.append("returned model, after the last steps")
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


PANELS = {
    "train_cost": "training cost",
    **{f"test_{name}": f"test {metric.words}" for name, metric in METRICS.items()},
    "norm_sq": "|w|²",
    "worst": "worst constraint: value - limit",
}


def _scales(axes: Mapping[str, Any], limits: Sequence[float]) -> None:
    """Set the scale of each quantity, and shade the feasible side of limits."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter, PercentFormatter

    if worst := axes.get("worst"):
        worst.set_yscale("symlog", linthresh=0.01)
        worst.axhline(0, color="black", linewidth=1.0)
        worst.axhspan(worst.get_ylim()[0], 0, color="#009E73", alpha=0.1)
    if accuracy := axes.get("test_accuracy"):
        accuracy.yaxis.set_major_formatter(PercentFormatter(1.0))
    if cost := axes.get("train_cost"):
        cost.set_yscale("log")
        cost.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        cost.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        cost.yaxis.set_minor_formatter(NullFormatter())
        for limit in (limit for limit in limits if limit > 0):
            cost.axhline(limit, color="black", linewidth=1.0, label=f"limit {limit:g}")
            bottom = min(cost.get_ylim()[0], limit / 1.5)
            cost.axhspan(bottom, limit, color="#009E73", alpha=0.1)
            cost.set_ylim(bottom=bottom)


def with_worst(row: Row) -> Row:
    """Return the row with its largest F_m added, if it has constraints."""
    return row | {"worst": max(row["constraints"])} if row["constraints"] else row


def short_names(paths: Iterable[Path]) -> list[str]:
    """Return the names of folders; a name that begins with the first one shows only the rest.

    The twin of a run, which is trained without its limits, is called so.
    """
    first, *others = (path.name for path in paths)
    twin = first + TWIN
    rest = ["…" + n.removeprefix(first) if n.startswith(first) else n for n in others]
    return [
        first,
        *("without limits" if n == twin else r for n, r in zip(others, rest, strict=True)),
    ]
