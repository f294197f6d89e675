"""The picture on top of the README: python benchmarks/hero.py ADULT_FOLDER docs/hero.png

Five clients train an income model on the Adult data twice, with a limit of 0.05 on the gap between
the sexes and without one (a limit of 1 binds nobody, but is measured). `fedssca data get adult`
says where the folder is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import train
from fedssca.run.simulate import Result

LIMIT = 0.05
RUN = """
[data]
name = "adult"
clients = 5

[model]
name = "linear"

[[problem.constraint]]
kind = "parity"
column = "sex"
limit = {limit}

[algorithm]
batch = 400
rounds = 300

[run]
evaluate_every = 3
"""


def run(limit: float, folder: str) -> Result:
    text = RUN.format(limit=limit).replace('name = "adult"', f'name = "adult"\ndir = "{folder}"')
    return train(build(parse(text)))


def draw(kept: Result, free: Result, file: Path) -> None:
    figure = Figure(figsize=(10, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    rounds = [row["round"] for row in kept.rows]
    runs: list[tuple[Result, str, str]] = [
        (free, "#D55E00", "without a limit"),
        (kept, "#0072B2", f"limit {LIMIT:g}"),
    ]
    for result, colour, label in runs:
        style: dict[str, Any] = {"color": colour, "linewidth": 2.0}
        style["linestyle"] = "--" if result is free else "-"
        for axis, name in ((left, "train_parity_sex"), (right, "test_accuracy")):
            axis.plot(rounds, [row[name] for row in result.rows], **style, label=label)
            axis.plot(
                rounds[-1], result.final[name], "*", color=colour, markersize=15, clip_on=False
            )
    left.axhspan(-LIMIT, LIMIT, color="#009E73", alpha=0.15)
    left.axhline(LIMIT, color="#00654b", linewidth=1)
    left.text(4, 0.0, "what you allow", color="#00654b", va="center", fontsize=12)
    left.set_title("gap in predicted high incomes, men - women, all training rows")
    left.set_ylim(-LIMIT, None)
    right.set_title("accuracy on held-out rows")
    right.set_ylim(0.80, 0.87)
    right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    for axis in (left, right):
        axis.set_xlabel("communication round")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlim(0, rounds[-1] * 1.02)
    gap, price = kept.final["train_parity_sex"], free.final["test_accuracy"]
    left.annotate(
        f"{free.final['train_parity_sex']:.3f}",
        (rounds[-1], free.final["train_parity_sex"]),
        xytext=(-6, 10),
        textcoords="offset points",
        ha="right",
        color="#D55E00",
    )
    left.annotate(
        f"returned model: {gap:.3f}",
        (rounds[-1], gap),
        xytext=(-10, -16),
        textcoords="offset points",
        ha="right",
        color="#0072B2",
    )
    right.text(
        rounds[-1],
        0.805,
        f"price: {100 * (price - kept.final['test_accuracy']):.1f} points",
        ha="right",
    )
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    source, target = sys.argv[1:]
    draw(run(LIMIT, source), run(1.0, source), Path(target))
