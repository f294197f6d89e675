"""A panel as a small figure in the style of the paper, as PNG and as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from fedssca.studies.reproduce.experiment import Experiment
from fedssca.studies.reproduce.measure import Line, Measured

__all__ = ["draw"]

STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "legend.fontsize": 6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.direction": "in",
    "ytick.direction": "in",
    "xtick.top": True,
    "ytick.right": True,
    "lines.linewidth": 0.9,
    "lines.markersize": 3.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedssca",
}
SIZE = (3.5, 2.8)
COLOURS = {
    "Algorithm 1": "#0072B2",
    "Algorithm 2": "#0072B2",
    "Algorithm 3": "#0072B2",
    "Algorithm 4": "#0072B2",
    "SGD": "#D55E00",
    "SGD-m": "#009E73",
    "steered method": "#CC79A7",
}
OTHER = ("#E69F00", "#56B4E9", "#000000")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "x")
NAMES = {
    "train_cost": "Training cost",
    "test_accuracy": "Test accuracy",
    "norm_sq": r"$\Vert\omega\Vert_2^2$",
    "objective": "Objective",
}
ROUND = "Communication round index $t$"


def draw(
    panel: Experiment,
    shown: Sequence[Line],
    found: Mapping[str, Measured],
    png: IO[bytes],
    svg: IO[bytes],
) -> None:
    """Draw the panel into both files; equal numbers give equal bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE)
        figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02)
        paint = {
            "trajectory": _trajectory,
            "tradeoff": _tradeoff,
            "sweep": _sweep,
            "equivalence": _equivalence,
            "identity": _identity,
        }[panel.kind]
        paint(figure, panel, shown, found)
        figure.savefig(png, format="png", dpi=300, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})


def _style(line: Line, shown: Sequence[Line]) -> dict[str, Any]:
    """Return the style of a line: colour by group, dashes by B x E, markers within the group."""
    groups = list(dict.fromkeys(other.curve.group for other in shown))
    free = [group for group in groups if group not in COLOURS]
    group = line.curve.group
    colour = COLOURS.get(group) or OTHER[free.index(group) % len(OTHER)]
    works = sorted({other.curve.work for other in shown}, reverse=True)
    peers = [other.label for other in shown if other.curve.group == group]
    return {
        "color": colour,
        "linestyle": DASHES[works.index(line.curve.work) % len(DASHES)],
        "marker": MARKERS[peers.index(line.label) % len(MARKERS)],
        "markerfacecolor": "white",
        "markeredgewidth": 0.7,
    }


def _label(line: Line) -> str:
    return line.label + (" †" if line.curve.extra else "")


def _columns(line: Line) -> tuple[np.ndarray, ...]:
    return tuple(np.array(column) for column in zip(*(p[1:5] for p in line.points), strict=True))


def _trajectory(
    figure: Any, panel: Experiment, shown: Sequence[Line], found: Mapping[str, Measured]
) -> None:
    axis = figure.subplots()
    last = max(line.points[-1].x for line in shown)
    for number, line in enumerate(shown):
        x, mean, sd, _ = _columns(line)
        style = _style(line, shown)
        wanted = np.linspace(0, last, 11) + last * 0.1 * number / len(shown)
        marks = sorted({int(np.abs(x - t).argmin()) for t in wanted if t <= last})
        axis.plot(x, mean, label=_label(line), markevery=marks, **style)
        axis.fill_between(x, mean - sd, mean + sd, color=style["color"], alpha=0.15, linewidth=0)
        if line.curve.model == "returned":
            final = found[line.curve.label].final(panel.quantity).mean()
            axis.plot(last, final, "*", color=style["color"], markersize=7, clip_on=False, zorder=5)
    axis.set(xlabel=ROUND, ylabel=NAMES[panel.quantity], xlim=(0, last))
    ends = [[p.mean for p in line.points if p.x >= 0.05 * last] for line in shown]
    low, high = min(map(min, ends)), max(map(max, ends))
    if panel.quantity == "test_accuracy":
        axis.set_ylim(max(0.0, low - 0.1 * (1 - low)), min(1.0, high + 0.25 * (1 - high)))
    elif panel.quantity == "train_cost":
        axis.set_ylim(0, 1.02 * high)
        for limit in {c.limit for c in panel.drawn if c.config.problem.constraint}:
            axis.axhline(limit, color="black", linewidth=0.6, linestyle=":", zorder=0)
            axis.annotate(
                f"$U = {limit:g}$",
                (0.01, limit),
                xycoords=("axes fraction", "data"),
                xytext=(2, -7),
                textcoords="offset points",
                fontsize=6,
            )
    _finish(axis, shown)


def _tradeoff(
    figure: Any, panel: Experiment, shown: Sequence[Line], found: Mapping[str, Measured]
) -> None:
    axis = figure.subplots()
    for line in shown:
        style = _style(line, shown) | {"linestyle": "none"}
        reached = [p for p in line.points if np.isfinite(p.mean)]
        best = {x: min(p.mean for p in reached if p.x == x) for x in sorted({p.x for p in reached})}
        axis.plot(list(best), list(best.values()), color=style["color"], zorder=1)
        style["marker"] = MARKERS[[other.label for other in shown].index(line.label)]
        x, y, sd = (np.array([p[i] for p in reached]) for i in (1, 2, 3))
        bars = {"elinewidth": 0.6, "capsize": 1.5}
        axis.errorbar(x, y, np.minimum(sd, 0.9 * y), label=_label(line), **style, **bars)
        for p in reached:
            chosen = found[p.curve].curve.config.algorithm
            if sum(other.x == p.x for other in line.points) > 1:
                axis.annotate(
                    f"{chosen.batch}×{chosen.local_steps}",
                    (p.x, p.mean),
                    xytext=(4, -2),
                    textcoords="offset points",
                    fontsize=5,
                    color=style["color"],
                )
    axis.set(xscale="log", yscale="log", ylabel=f"Rounds to {panel.target:.0%} test accuracy")
    axis.margins(x=0.14)
    works = sorted({point.x for line in shown for point in line.points})
    axis.set_xticks(works, [f"{work:g}" for work in works], minor=False)
    axis.set_xticks([], minor=True)
    _plain(axis.yaxis)
    split = panel.drawn[0].config.data.split
    axis.set_xlabel("Samples per round, $B$" + (r" or $B\times E$" if split == "sample" else ""))
    _finish(axis, shown)


def _sweep(
    figure: Any, panel: Experiment, shown: Sequence[Line], found: Mapping[str, Measured]
) -> None:
    del panel
    _ends(figure.subplots(), shown, found)


def _ends(axis: Any, shown: Sequence[Line], found: Mapping[str, Measured]) -> None:
    """Draw |w|^2 against the training cost at the ends of runs, and name what is swept."""
    for line in shown:
        style = _style(line, shown)
        points = sorted(line.points, key=lambda p: p.x)
        spread = [found[p.curve].final("train_cost").std() for p in points]
        x, y, sd = (np.array([p[i] for p in points]) for i in (1, 2, 3))
        axis.errorbar(x, y, sd, spread, label=_label(line), elinewidth=0.6, capsize=1.5, **style)
        above = line is shown[0] or not line.curve.config.problem.constraint
        for p in points:
            axis.annotate(
                p.curve.rpartition(", ")[2],
                (p.x, p.mean),
                xytext=(4, 3) if above else (-4, -3),
                ha="left" if above else "right",
                va="bottom" if above else "top",
                textcoords="offset points",
                fontsize=5,
                color=style["color"],
            )
    axis.set(xlabel="Training cost", ylabel=NAMES["norm_sq"])
    axis.margins(x=0.12, y=0.1)
    _finish(axis, shown)


def _equivalence(
    figure: Any, panel: Experiment, shown: Sequence[Line], found: Mapping[str, Measured]
) -> None:
    """Draw both sweeps at the left; at the right lambda and 1 / nu against the training cost."""
    del panel
    figure.set_size_inches(2 * SIZE[0], SIZE[1])
    left, right = figure.subplots(1, 2)
    _ends(left, shown, found)
    for line in shown:
        members = [found[name] for name in dict.fromkeys(p.curve for p in line.points)]
        ends = sorted((float(m.final("train_cost").mean()), _price(m)) for m in members)
        name = r"$1/\nu$" if line.curve.config.problem.constraint else r"$\lambda$"
        right.plot(*zip(*ends, strict=True), label=f"{name}, {line.label}", **_style(line, shown))
    right.set(xlabel="Training cost", ylabel=r"$\lambda$ and $1/\nu$", xscale="log", yscale="log")
    _plain(right.xaxis)
    _finish(right, shown)


def _price(measured: Measured) -> float:
    """Return lambda, or the mean of 1 / nu over the runs."""
    if not measured.curve.config.problem.constraint:
        return measured.curve.weight
    return float((1 / measured.final("multipliers")).mean())


def _identity(
    figure: Any, panel: Experiment, shown: Sequence[Line], found: Mapping[str, Measured]
) -> None:
    """Draw both trajectories of the first curve above, and the distance of every curve below."""
    del panel, found
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    hues = iter(dict.fromkeys(COLOURS.values()))
    ours, recursion = shown[:2]
    x, mean, *_ = _columns(ours)
    top.plot(x, mean, color=COLOURS["Algorithm 1"], linewidth=2.4, alpha=0.4, label=ours.label)
    x, mean, *_ = _columns(recursion)
    dots: dict[str, Any] = {"color": "black", "markersize": 2.5, "linestyle": "none"}
    top.plot(x, mean, marker=".", label=recursion.label, **dots)
    for line in (line for line in shown if line.label.startswith("distance")):
        x, mean, *_ = _columns(line)
        bottom.plot(x[mean > 0], mean[mean > 0], color=next(hues), label=line.curve.label)
    top.set(ylabel="Training cost", yscale="log")
    _plain(top.yaxis)
    bottom.set(xlabel=ROUND, ylabel=r"$\Vert\omega-\omega'\Vert/\Vert\omega\Vert$", yscale="log")
    bottom.set_xlim(0, max(line.points[-1].x for line in shown))
    for axis in (top, bottom):
        _finish(axis, shown)


def _plain(axis: Any) -> None:
    """Label a logarithmic axis with 1, 2, 5, 10, ..."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_formatter(NullFormatter())


def _finish(axis: Any, shown: Sequence[Line]) -> None:
    """Add the grid, and the legend with the meaning of the dagger."""
    axis.grid(linewidth=0.3, alpha=0.5)
    axis.set_axisbelow(True)
    entries = len(axis.get_legend_handles_labels()[1])
    title = "† not in the paper" if any(line.curve.extra for line in shown) else None
    axis.legend(
        loc="best",
        ncols=2 if entries > 6 else 1,
        framealpha=0.85,
        edgecolor="0.7",
        fancybox=False,
        handlelength=2.6,
        columnspacing=1.0,
        labelspacing=0.25,
        borderpad=0.3,
        title=title,
        title_fontsize=5.5,
        alignment="left",
    )
