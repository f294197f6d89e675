"""The picture of an audit: originals, and their reconstructions under each protection."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import IO, Any

import numpy as np
from PIL import Image

from fedssca.studies.audit.score import Score

__all__ = ["draw"]

INK, GREY = "#222222", "#777777"
MOST = 10
"""The largest number of images in a line."""

Rebuilt = Sequence[tuple[str, Score]]
"""The lines of the picture: a protection, and the score of the attack under it."""


def draw(
    file: IO[bytes],
    title: str,
    originals: np.ndarray,
    found: Rebuilt,
    side: int,
) -> None:
    """Write a PNG; `side` is the side length of square images, 0 to plot features."""
    paint = _images if side else _features
    figure = paint(title, originals, found, side)
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    # Images of noise hardly compress; with few colours the file is a third as large.
    Image.open(drawn).convert("RGB").quantize(32).save(file, format="png", optimize=True)


def _images(title: str, originals: np.ndarray, found: Rebuilt, side: int) -> Any:
    from matplotlib.figure import Figure

    columns = min(len(originals), MOST)
    lines: list[tuple[str, str, np.ndarray, np.ndarray | None]] = [
        ("originals", "", originals[:columns], None)
    ]
    for name, one in found:
        numbers = f"correlation {one.correlation:.3f}\n"
        numbers += f"chance {one.chance:.2f}, control {one.control:.2f}"
        lines.append((name, numbers, one.x[:columns], one.each[:columns]))
    wide, margin = 0.62 * columns, 2.3
    height = 0.62 * len(lines) + 0.16 * len(found) + 0.45
    across = max(wide + margin, 4.8)
    figure = Figure(figsize=(across, height), facecolor="white")
    figure.text(
        0.1 / across, 1 - 0.2 / height, title, size=9, weight="bold", color=INK, va="center"
    )
    top = height - 0.45
    for name, numbers, images, each in lines:
        middle = (top - 0.31) / height
        figure.text(
            0.1 / across,
            middle + (0.1 if numbers else 0) / height,
            name,
            size=8,
            color=INK,
            va="center",
        )
        if numbers:
            figure.text(
                0.1 / across, middle - 0.13 / height, numbers, size=6.5, color=GREY, va="center"
            )
        for column, image in enumerate(images):
            place = [
                (margin + 0.62 * column) / across,
                (top - 0.58) / height,
                0.58 / across,
                0.58 / height,
            ]
            axis = figure.add_axes((place[0], place[1], place[2], place[3]))
            axis.imshow(_shown(image).reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            for spine in axis.spines.values():
                spine.set(linewidth=0.4, color="#bbbbbb")
            if each is not None:
                axis.set_xlabel(f"{each[column]:.2f}", size=6, color=GREY, labelpad=1)
        top -= 0.62 + (0.16 if each is not None else 0)
    return figure


def _shown(image: np.ndarray) -> np.ndarray:
    """Return an image with values between 0 and 1: clipped if it almost is, else rescaled."""
    low, high = float(image.min()), float(image.max())
    if low > -0.2 and high < 1.3:
        return np.clip(image, 0, 1)
    return np.asarray((image - low) / max(high - low, 1e-12))


def _features(title: str, originals: np.ndarray, found: Rebuilt, side: int) -> Any:
    from matplotlib.figure import Figure

    del side
    figure = Figure(figsize=(2.3 * len(found) + 0.4, 2.9), facecolor="white")
    figure.set_layout_engine("constrained")
    figure.suptitle(title, size=9, weight="bold", color=INK)
    low, high = np.quantile(originals, [0.002, 0.998])
    room = 0.3 * (high - low)
    for number, (name, each) in enumerate(found):
        axis = figure.add_subplot(1, len(found), number + 1)
        axis.plot([low, high], [low, high], color="#bbbbbb", linewidth=0.8, zorder=0)
        shown = slice(0, min(len(originals), len(each.x)))  # A sum has more rows.
        axis.plot(
            originals[shown].ravel(), each.x[shown].ravel(), ".", color="#0072B2", ms=2, alpha=0.5
        )
        axis.set(xlim=(low - room, high + room), ylim=(low - room, high + room))
        axis.set_title(
            f"{name}\ncorrelation {each.correlation:.3f}, chance {each.chance:.2f}",
            size=7,
            color=INK,
        )
        axis.set_xlabel("original feature", size=7)
        axis.tick_params(labelsize=6)
        if number == 0:
            axis.set_ylabel("rebuilt", size=7)
    return figure
