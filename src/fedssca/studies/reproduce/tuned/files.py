"""The files that both tuned comparisons write, and what their pages have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedssca.studies.reproduce.pages import Draw, Origin, put_files

__all__ = ["page_of", "write_files"]

Row = dict[str, Any]


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
    put_files(out, about, csv=csv, draw=draw, page=page)
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
