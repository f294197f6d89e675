"""The files that both tuned comparisons write, and what their pages have in common."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from fedssca.studies.reproduce.pages import Origin, put

__all__ = ["page_of", "write_files"]

Row = dict[str, Any]
Draw = Callable[[IO[bytes], IO[bytes]], None]
"""Draws a figure into a PNG file and an SVG file."""


def write_files(
    out: Path,
    name: str,
    title: str,
    outcomes: Sequence[Any],
    verdict: Sequence[str],
    origin: Origin,
    *,
    csv: str,
    draw: Draw,
    page: Callable[[Row], str],
) -> Row:
    """Write NAME.csv, .md, .png, .svg and .json; return the content of the last one."""
    about: Row = {
        "name": name,
        "title": title,
        "outcomes": [dataclasses.asdict(outcome) for outcome in outcomes],
        "verdict": verdict,
        **origin._asdict(),
    }
    png, svg = io.BytesIO(), io.BytesIO()
    draw(png, svg)
    for ending, content in {
        "csv": csv.encode(),
        "png": png.getvalue(),
        "svg": svg.getvalue(),
        "md": page(about).encode(),
        "json": (json.dumps(about, indent=1) + "\n").encode(),
    }.items():
        put(out, f"{name}.{ending}", content)
    return about


def page_of(about: Row, how: str, *numbers: str) -> str:
    """The page NAME.md: how the comparison was made, its figure, its sentences and its numbers."""
    name = about["name"]
    parts = [
        f"# {name}: {about['title']}",
        how,
        f"![{name}]({name}.png)",
        "## In words",
        "\n".join(f"- {line}" for line in about["verdict"]),
        "## Numbers",
        *numbers,
    ]
    return "\n\n".join(parts) + "\n"
