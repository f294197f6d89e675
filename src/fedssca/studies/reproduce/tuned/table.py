"""The result of a tuned comparison as a table, as sentences and as a figure."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

from fedssca.studies.reproduce.tuned.comparison import Entry, Outcome

__all__ = ["draw", "table", "verdict"]

COLOURS = {"ssca": "#0072B2", "sgd": "#D55E00", "momentum": "#009E73"}
MARKERS = {"ssca": "o", "sgd": "s", "momentum": "^"}
HEAD = ("B×E", "target", "entry", "rounds", "range", "reached", "samples", "MB", "settings")


def table(outcomes: Sequence[Outcome], form: str = "markdown") -> str:
    """Return the outcomes as "markdown", "text" (for a terminal) or "csv" (every number)."""
    if form == "csv":
        return _csv(outcomes)
    body = [_line(o) for o in _ordered(outcomes)]
    if form == "text":
        lines = [HEAD[:-1], *(line[:-1] for line in body)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            + "\n"
            for line in lines
        )
    rule = ["---:" if name in ("B×E", "target", "samples", "MB") else "---" for name in HEAD]
    return "".join("| " + " | ".join(line) + " |\n" for line in (HEAD, rule, *body))


def verdict(outcomes: Sequence[Outcome]) -> list[str]:
    """Return sentences for every B×E and target: which entry needs the fewest rounds.

    Two means differ clearly if their distance exceeds the sum of the two standard deviations.
    """
    out = []
    for load, target in dict.fromkeys((o.entry.load, o.target) for o in _ordered(outcomes)):
        here = [o for o in _single(outcomes) if (o.entry.load, o.target) == (load, target)]
        out.append(f"B×E = {load}, {target:.0%}: " + _sentence(here))
    for o in _single(outcomes):
        if not o.rounds:
            out.append(f"{o.entry.name}: none of {o.trials} trials reached {o.target:.0%}.")
        elif not o.sure:
            n = len(o.done)
            out.append(f"{o.entry.name}: {n} of {len(o.rounds)} runs reached {o.target:.0%}.")
    if twins := list(
        dict.fromkeys((o.entry.name, o.entry.same_as) for o in outcomes if o.entry.same_as)
    ):
        same = ", ".join(f"{name} is {same_as}" for name, same_as in twins)
        out.append(f"Momentum starts each round with zero velocity, so with one local step {same}.")
    return out


def _sentence(here: Sequence[Outcome]) -> str:
    order = sorted((o for o in here if o.sure), key=lambda o: o.mean)
    if not order:
        return "no entry reached it in every run."
    first, *others = order
    said = [f"{_named(first)} needs the fewest rounds"]
    if others:
        said[0] += f", next is {_named(others[0])}; the gap {_gap(first, others[0])}"
    single = _best(order, lambda e: e.method == "ssca" and e.steps == 1)
    local = _best(order, lambda e: e.method == "ssca" and e.steps > 1)
    rivals = [o for o in order if o.entry.method != "ssca"]
    if single:
        ahead = [o for o in order if o is not single and clear(o, single)]
        said.append(f"single-step {_named(single)} " + _beaten(ahead, rivals))
    if local:
        ahead = [o for o in rivals if clear(o, local)]
        said.append(f"local-step {_named(local)} " + _beaten(ahead, rivals))
    return ". ".join(text[0].upper() + text[1:] if i else text for i, text in enumerate(said)) + "."


def clear(faster: Outcome, slower: Outcome) -> bool:
    """Whether one is faster by more than the sum of the two standard deviations."""
    spread = sum(0.0 if math.isnan(o.sd) else o.sd for o in (faster, slower))
    return slower.mean - faster.mean > spread


def _gap(first: Outcome, second: Outcome) -> str:
    if clear(first, second):
        return f"({second.mean / first.mean - 1:.0%}) exceeds the spread"
    return "is within the spread"


def _beaten(ahead: Sequence[Outcome], rivals: Sequence[Outcome]) -> str:
    if ahead:
        return "is beaten by " + ", ".join(map(_named, ahead))
    return "is beaten by no baseline" if rivals else "has no baseline to beat"


def _best(order: Iterable[Outcome], fits: Callable[[Entry], bool]) -> Outcome | None:
    return next((o for o in order if fits(o.entry)), None)


def _named(o: Outcome) -> str:
    return f"{o.entry.name} ({_rounds(o)})"


def _rounds(o: Outcome) -> str:
    if not o.done:
        return "-"
    digits = _digits(o)
    spread = "" if math.isnan(o.sd) else f" ± {o.sd:.{digits}f}"
    return f"{o.mean:.{digits}f}{spread}"


def _digits(o: Outcome) -> int:
    return 1 if o.mean < 100 else 0


def _line(o: Outcome) -> list[str]:
    digits = _digits(o)
    near = f"{min(o.done):.{digits}f} - {max(o.done):.{digits}f}" if o.done else "-"
    return [
        str(o.entry.load),
        f"{o.target:.0%}",
        o.entry.name,
        _rounds(o),
        near,
        f"{len(o.done)} of {len(o.rounds)}" if o.rounds else "no trial",
        f"{o.samples * o.mean:,.0f}" if o.done else "-",
        f"{sum(o.wire) * o.mean / 1e6:,.0f}" if o.done else "-",
        ", ".join(s.removeprefix("algorithm.") for s in o.settings) or "-",
    ]


def _csv(outcomes: Sequence[Outcome]) -> str:
    rows = [_flat(o) for o in _ordered(outcomes)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _flat(o: Outcome) -> dict[str, Any]:
    up, down, peer = (round(b * o.mean) if o.done else "" for b in o.wire)
    return {
        "entry": o.entry.name,
        "method": o.entry.method,
        "batch": o.entry.batch,
        "local_steps": o.entry.steps,
        "target": o.target,
        "mean": o.mean if o.done else "",
        "sd": "" if math.isnan(o.sd) else o.sd,
        "min": min(o.done, default=""),
        "max": max(o.done, default=""),
        "reached": len(o.done),
        "runs": len(o.rounds),
        "samples": round(o.samples * o.mean) if o.done else "",
        "bytes_up": up,
        "bytes_down": down,
        "bytes_peer": peer,
        "trials": o.trials,
        "trials_reached": o.fit,
        "validation_rounds": "" if o.searched is None else o.searched,
        "seeds": " ".join(map(str, o.seeds)),
        "rounds": json.dumps(o.rounds),
        "settings": "; ".join(o.settings),
    }


def _ordered(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes sorted by B×E and target."""
    return sorted(outcomes, key=lambda o: (o.entry.load, o.target))


def _single(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes without entries that equal another entry."""
    names = {o.entry.name for o in outcomes}
    return [o for o in _ordered(outcomes) if o.entry.same_as not in names]


def draw(outcomes: Sequence[Outcome], png: IO[bytes], svg: IO[bytes]) -> None:
    """Draw the rounds to each target: one mark per entry, with a bar from least to most."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    shown = _single(outcomes)
    loads = list(dict.fromkeys(o.entry.load for o in shown))
    targets = list(dict.fromkeys(o.target for o in shown))
    names = {
        load: list(dict.fromkeys(o.entry for o in shown if o.entry.load == load)) for load in loads
    }
    tall = [len(names[load]) + 1 for load in loads]
    style: Any = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "fedssca"}
    with mpl.rc_context(style):
        figure = Figure(
            figsize=(1.6 + 2.3 * len(targets), 1.1 + 0.27 * sum(tall)), layout="constrained"
        )
        grid = figure.subplots(
            len(loads), len(targets), squeeze=False, sharex="col", height_ratios=tall
        )
        for (load, axes), last in zip(
            zip(loads, grid, strict=True), (load is loads[-1] for load in loads), strict=True
        ):
            for axis, target in zip(axes, targets, strict=True):
                for place, entry in enumerate(names[load]):
                    found = [o for o in shown if (o.entry, o.target) == (entry, target)]
                    _dot(axis, place, entry, found[0] if found else None)
                axis.set_xscale("log")
                axis.set_ylim(len(names[load]) - 0.4, -0.6)
                axis.set_yticks([])
                axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.xaxis.set_major_formatter(ScalarFormatter())
                axis.xaxis.set_minor_formatter(NullFormatter())
                axis.grid(axis="x", alpha=0.3)
                axis.spines[["top", "right", "left"]].set_visible(False)
                if last:
                    axis.set_xlabel("rounds")
                if load is loads[0]:
                    axis.set_title(f"{target:.0%} test accuracy", fontsize=10)
            axes[0].set_yticks(range(len(names[load])), [e.name for e in names[load]])
            axes[0].tick_params(axis="y", length=0)
            for label, entry in zip(axes[0].get_yticklabels(), names[load], strict=True):
                label.set_color(COLOURS.get(entry.method, "black"))
            axes[0].set_ylabel(f"B×E = {load}", fontweight="bold")
        figure.supxlabel(
            "mark: mean of the runs; bar: least to most; hollow: not every run reached the target",
            fontsize=8,
            color="#555555",
        )
        figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})


def _dot(axis: Any, place: int, entry: Entry, o: Outcome | None) -> None:
    colour = COLOURS.get(entry.method, "black")
    if o is None or not o.done:
        axis.text(
            0.98,
            place,
            "not reached",
            transform=axis.get_yaxis_transform(),
            ha="right",
            va="center",
            color="#555555",
            fontsize=8,
        )
        return
    axis.plot([min(o.done), max(o.done)], [place, place], color=colour, linewidth=2.5, alpha=0.5)
    face = colour if o.sure else "white"
    axis.plot(o.mean, place, MARKERS.get(entry.method, "D"), color=colour, markerfacecolor=face)
