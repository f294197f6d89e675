"""The files of the tuned comparison with a limit: table, sentences, figure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from fedssca.studies.reproduce.pages import Origin, origin_line
from fedssca.studies.reproduce.tuned.files import page_of, write_files
from fedssca.studies.reproduce.tuned.limits import OURS, LimitEntry, LimitOutcome

__all__ = ["limit_page", "outcomes_in", "write_limit_comparison"]

Row = dict[str, Any]
HEAD = ("B", "method", "kept", "F", "\\|w\\|² of the kept", "test accuracy", "trials", "settings")
COLOURS = dict(zip(OURS, ("#0072B2", "#009E73", "#CC79A7"), strict=True))
RIVAL = "#D55E00"


def write_limit_comparison(
    out: Path, split: str, outcomes: Sequence[LimitOutcome], origin: Origin
) -> Row:
    """Write tuned-limit-SPLIT.csv, .md, .png, .svg and .json; return the content of the last."""
    return write_files(
        out,
        f"tuned-limit-{split}",
        f"every method tuned alike, {split}-based, with a limit",
        outcomes,
        verdict(outcomes),
        origin,
        csv=_csv(outcomes),
        draw=partial(draw, outcomes),
        page=limit_page,
    )


def outcomes_in(about: Row) -> list[LimitOutcome]:
    """Return the outcomes that a tuned-limit-SPLIT.json holds."""
    lists = ("settings", "seeds", "costs", "objectives", "violations", "accuracies")
    return [
        LimitOutcome(
            **row
            | {name: tuple(row[name]) for name in lists}
            | {"entry": LimitEntry(**row["entry"])}
        )
        for row in about["outcomes"]
    ]


def limit_page(about: Row) -> str:
    """Return tuned-limit-SPLIT.md."""
    outcomes = outcomes_in(about)
    first = outcomes[0]
    how = (
        f"min |w|² s.t. F <= {first.limit:g}. Every method, with every batch size B, got "
        f"{first.trials} trials of {first.entry.rounds} rounds at the same low-discrepancy points "
        "of its ranges in `fedssca tune`, on 80 % of the training rows. The settings of the trial "
        "that breaks the limit least, and among those that keep it has the smallest |w|², were "
        f"used on all training rows with {len(first.seeds)} other seeds. `exact` is the paper's "
        "method, `corrected` the default of this library, `steered` its multipliers that move "
        "step by step; the others are in `methods/rivals.py`."
    )
    return page_of(about, how, _table(outcomes), origin_line(about))


def verdict(outcomes: Sequence[LimitOutcome]) -> list[str]:
    """Return sentences for every batch size: who keeps the limit, and with which |w|^2."""
    out = []
    for batch in dict.fromkeys(o.entry.batch for o in outcomes):
        here = [o for o in outcomes if o.entry.batch == batch]
        sure = sorted((o for o in here if o.sure), key=lambda o: o.mean)
        said = ["no method keeps the limit in every run"]
        if sure:
            said = [f"{_named(sure[0])} has the smallest |w|² of those that keep the limit"]
            said += ["then " + ", ".join(map(_named, sure[1:]))] if sure[1:] else []
        others = [o for o in here if not o.sure]
        if others:
            counts = (f"{o.entry.method} {len(o.kept)} of {len(o.seeds)}" for o in others)
            said.append("kept in fewer runs: " + ", ".join(counts))
        out.append(f"B = {batch}: " + "; ".join(said) + ".")
    return out


def _named(o: LimitOutcome) -> str:
    return f"{o.entry.method} ({_spread(o.kept, '.1f')})"


def _spread(values: Sequence[float | None], form: str) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    mean = math.fsum(known) / len(known)
    if len(known) == 1:
        return f"{mean:{form}}"
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in known) / (len(known) - 1))
    return f"{mean:{form}} ± {sd:{form}}"


def _table(outcomes: Sequence[LimitOutcome]) -> str:
    rule = ["---:" if name == "B" else "---" for name in HEAD]
    rows = [
        (
            str(o.entry.batch),
            o.entry.method,
            f"{len(o.kept)} of {len(o.seeds)}",
            _spread(o.costs, ".4f"),
            _spread(o.kept, ".1f"),
            _spread(o.accuracies, ".4f"),
            f"{o.kept_trials} of {o.trials} kept it",
            ", ".join(s.removeprefix("algorithm.") for s in o.settings) or "calibrated",
        )
        for o in outcomes
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in (HEAD, rule, *rows))


def _csv(outcomes: Sequence[LimitOutcome]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["method", "batch", "seed", "cost", "norm_sq", "violation", "test_accuracy"])
    for o in outcomes:
        runs = zip(o.seeds, o.costs, o.objectives, o.violations, o.accuracies, strict=True)
        table.writerows([o.entry.method, o.entry.batch, *run] for run in runs)
    return text.getvalue()


def draw(outcomes: Sequence[LimitOutcome], png: IO[bytes], svg: IO[bytes]) -> None:
    """Draw F at the end of every run beside the limit, and |w|^2 of the runs that keep it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "fedssca"}
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.5, 1.2 + 0.27 * len(outcomes)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for place, o in enumerate(outcomes):
            colour = COLOURS.get(o.entry.method, RIVAL)
            mark: Any = {"color": colour, "linestyle": "none", "markersize": 4}
            costs = [cost for cost in o.costs if cost is not None]
            left.plot(costs, [place] * len(costs), "o", **mark)
            right.plot(o.kept, [place] * len(o.kept), "o", **mark)
        left.axvline(outcomes[0].limit, color="black", linewidth=0.8, linestyle=":")
        left.set(xlabel="F at the end of each run (dotted: U)", xscale="log")
        right.set(xlabel="|w|² of the runs that keep F <= U")
        left.set_yticks(range(len(outcomes)), [o.entry.name for o in outcomes])
        left.set_ylim(len(outcomes) - 0.4, -0.6)
        for axis in (left, right):
            axis.grid(axis="x", alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
        figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
