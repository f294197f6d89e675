"""The table and the figure of `benchmarks/certify.py`:

    python benchmarks/certify_table.py FOLDER docs/new-rows.png

prints the tables of coverage and power as Markdown, and draws the figure.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from scipy.stats import binom
from scipy.stats import t as student

from fedssca.evaluate.confidence.rates import rate_p_value
from fedssca.evaluate.estimate import clopper_pearson

Row = dict[str, Any]
WORDS = {
    "fnr": "false-negative rate",
    "gap": "gap between two groups",
    "loss": "loss",
    "client": "loss of every client",
}
BLUE, RED, GREY = "#0072B2", "#D55E00", "#555555"


def read(file: Path) -> list[Row]:
    """The draws of a file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Count:
    """How often something was false."""

    def __init__(self, rows: list[Row], false: str) -> None:
        self.rows = len(rows)
        self.promised = sum(row.get("certified", row.get("kept", False)) for row in rows)
        self.false = sum(bool(row.get(false)) and row.get("kept", True) for row in rows)

    @property
    def share(self) -> float:
        """False promises per draw."""
        return self.false / max(self.rows, 1)

    def words(self) -> str:
        """False ones of all draws, with an interval of 95 %."""
        low, high = clopper_pearson(self.false, self.rows)
        return f"{self.false} ({100 * low:.1f} to {100 * high:.1f} %)"


def counts(rows: list[Row]) -> dict[str, Count]:
    """What is counted of some draws; every share is of all draws."""
    sites = [row["each_site"] for row in rows if "each_site" in row]
    return {
        "plain": Count([row["plain"] for row in rows], "false"),
        "pooled": Count([row["pooled"] for row in rows], "false"),
        "student": Count([row["student"] for row in rows], "false"),
        "judged": Count([row["pooled"] for row in rows], "false_at_a_site"),
        "each_site": Count(sites, "false_at_a_site"),
    }


def coverage(rows: list[Row]) -> None:
    """The table of coverage."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["of"][0], row["of"][1]].append(row)
    for kind in WORDS:
        groups["all", kind] = [row for row in rows if row["of"][1] == kind]
    print(
        "| population | limit on | draws | training rows alone: false | certified | **certificate "
        "false** | t-test: false | each site certified | **certificate of each site false** | "
        "pooled certificate false at a site |\n|" + " --- |" * 10
    )
    kinds = list(WORDS)
    for (population, kind), own in sorted(groups.items(), key=lambda g: kinds.index(g[0][1])):
        found = counts(own)
        sites = found["each_site"]
        cells = [population, WORDS[kind], str(len(own)), str(found["plain"].false)]
        cells += [str(found["pooled"].promised), f"**{found['pooled'].words()}**"]
        cells += [str(found["student"].false)]
        cells += [str(sites.promised), f"**{sites.words()}**"] if sites.rows else ["", ""]
        cells += [str(found["judged"].false) if sites.rows else ""]
        print("| " + " | ".join(cells) + " |")


def certified_where_possible(rows: list[Row]) -> None:
    """How often a certificate is given, by the margin that the most cautious model has."""
    print("\n| margin of the most cautious model | draws | certified |\n| --- | ---: | ---: |")
    own = [row["pooled"] for row in rows]
    for low, high in ((-np.inf, 1), (1, 2), (2, 3), (3, 4), (4, np.inf)):
        there = [row["certified"] for row in own if low <= row["margin"] < high]
        if there:
            name = f"{low:g} to {high:g} standard errors"
            print(f"| {name} | {len(there)} | {100 * np.mean(there):.0f} % |")
    there = [row["certified"] for row in own if row["margin"] >= 2]
    print(f"| 2 standard errors or more | {len(there)} | {100 * np.mean(there):.0f} % |")


def at_the_limit() -> None:
    """The probability that a model on its limit is certified, exactly, over all counts of hits."""
    print("\n| limit | rows | t-test | exact test |\n| ---: | ---: | ---: | ---: |")
    for limit in (0.05, 0.15):
        for rows in (20, 40, 100, 400):
            hits = np.arange(rows + 1)
            rate = hits / rows
            error = np.sqrt(rate * (1 - rate) / (rows - 1))
            by_t = rate + student.ppf(0.95, rows - 1) * error <= limit
            exact = np.array([rate_p_value(int(k), rows, limit) <= 0.05 for k in hits])
            chance = binom.pmf(hits, rows, limit)
            shares = (f"{100 * chance[passed].sum():.1f} %" for passed in (by_t, exact))
            print(f"| {limit:g} | {rows} | " + " | ".join(shares) + " |")


def power(rows: list[Row]) -> None:
    """The table of power: how many are certified, and the accuracy and loss that this costs."""
    groups: dict[tuple[str, str], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["of"][0], row["of"][1]][row["of"][2]].append(row)
    titles = [f"{name}, {WORDS[kind]}" for name, kind in groups]
    print(
        "\n| calibration rows | "
        + " | ".join(titles)
        + " |\n"
        + "| ---: " * (len(titles) + 1)
        + "|"
    )
    for size in sorted({row["of"][2] for row in rows}):
        cells = [_price(own[size]) for own in groups.values()]
        print(f"| {size:,} | " + " | ".join(cells) + " |")


def _price(rows: list[Row]) -> str:
    """The share that is certified, and what it costs against the oracle."""
    share = f"{100 * np.mean([row['pooled']['certified'] for row in rows]):.0f} %"
    both = [row for row in rows if row["pooled"]["certified"] and row["oracle"]]
    if not both:
        return share
    accuracy, loss = (
        np.mean([row["oracle"][what] - row["pooled"][what] for row in both])
        for what in ("accuracy", "loss")
    )
    return f"{share}; {100 * accuracy:.1f} %, {0 - loss:.3f}"


def draw(rows: list[Row], file: Path) -> None:
    """How often limits are broken on new rows: training rows alone, and certified."""
    kinds = [kind for kind in WORDS if any(row["of"][1] == kind for row in rows)]
    figure = Figure(figsize=(8.5, 3.6), layout="constrained")
    axes = figure.subplots()
    for i, kind in enumerate(kinds):
        found = counts([row for row in rows if row["of"][1] == kind])
        for j, (name, colour) in enumerate((("plain", RED), ("pooled", BLUE), ("each_site", BLUE))):
            count = found[name]
            if not count.rows:
                continue
            low, high = clopper_pearson(count.false, count.rows)
            at = i + 0.26 * (j - 1)
            style: Row = {"color": colour, "alpha": 1.0 if j < 2 else 0.5}
            label = (
                "limit on training rows",
                "certified, all sites together",
                "certified, each site",
            )
            axes.bar(at, count.share, 0.24, label=label[j] if i == 0 else None, **style)
            error = [[count.share - low], [high - count.share]]
            axes.errorbar(at, count.share, error, color=GREY, capsize=3, linewidth=1)
            axes.annotate(
                f"{100 * count.share:.1f} %",
                (at, max(high, 0.05)),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=9,
            )
    axes.axhline(0.05, color=GREY, linestyle="--", linewidth=1)
    axes.annotate(
        "5 %: allowed at a\nconfidence of 95 %",
        (len(kinds) - 0.48, 0.05),
        color=GREY,
        fontsize=8.5,
        va="center",
        annotation_clip=False,
    )
    axes.set_xticks(range(len(kinds)), [WORDS[kind] for kind in kinds])
    axes.set_xlim(-0.5, len(kinds) - 0.5)
    axes.set_ylim(0, 1.08)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel("draws in which the limit\nis broken on new rows")
    names = {row["of"][0] for row in rows}
    axes.set_xlabel(f"limit on (in all {len(rows):,} draws from {len(names)} populations)")
    figure.legend(frameon=False, fontsize=9.5, loc="outside upper center", ncols=3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


def main() -> None:
    """Print the tables, and draw the figure."""
    folder, file = Path(sys.argv[1]), Path(sys.argv[2])
    rows = read(folder / "coverage.jsonl")
    coverage(rows)
    certified_where_possible(rows)
    at_the_limit()
    if curve := read(folder / "power.jsonl"):
        power(curve)
    draw(rows, file)


if __name__ == "__main__":
    main()
