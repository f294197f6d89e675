"""Figures from records: they read metrics rows, never live objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["draw_curves"]

Row = dict[str, Any]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw_curves(runs: Mapping[str, Sequence[Row]], limits: Sequence[float], path: Path) -> None:
    """Training cost, test accuracy and |w|^2 of one or more runs against the round, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels = [
        ("train_cost", "training cost"),
        ("test_accuracy", "test accuracy"),
        ("norm_sq", "|w|²"),
    ]
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 3.8), layout="constrained")
    for axis, (key, label) in zip(axes, panels, strict=True):
        for (name, rows), colour in zip(runs.items(), COLOURS, strict=False):
            seen = [(row["round"], row[key]) for row in rows if key in row]
            if seen:
                axis.plot(*zip(*seen, strict=True), label=name, color=colour, linewidth=1.8)
        axis.set(xlabel="communication round", ylabel=label)
        axis.grid(alpha=0.3)
    for limit in limits:
        top = axes[0].get_ylim()[1]
        axes[0].axhline(
            limit, color="black", linestyle="--", linewidth=1.2, label=f"limit {limit:g}"
        )
        axes[0].axhspan(0, limit, color="#009E73", alpha=0.08)
        axes[0].set_ylim(0, top)
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
