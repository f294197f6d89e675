"""One HTML file that needs nobody else: its styles, scripts and data are in it.

The content security policy names the hashes of exactly that style and that script, so nothing else
can run, whatever the data say; and it allows no connection to anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.report.gather import gather
from fedssca.run.curves import COLOURS

__all__ = ["SCRIPTS", "STYLES", "Page", "assemble", "report_page", "static"]

SCRIPTS = tuple(
    f"{name}.js"
    for name in ["base", "scale", "chart", "save", "card", "bars", "panels", "tables", "details"]
)
"""What the report and the live page share, in the order in which they build on each other."""
STYLES = ("base.css", "parts.css")
POINTS = 40_000
"""Points of a curve in a whole report, shared by its runs."""
ON_DARK = ("#5AB4F0", "#FF8F45", "#2CC796", "#E9A6CD", "#F5B93A", "#F0E442", "#F4F4F4")
"""COLOURS again for a dark page, in the same order."""


class Page(NamedTuple):
    """An HTML text, and the policy under which it works."""

    text: str
    policy: str


def report_page(paths: Sequence[Path]) -> str:
    """The report of runs: curves, tables, certificates."""
    names = distinct([path.resolve() for path in paths])
    points = min(2000, max(60, POINTS // len(paths)))
    runs = [gather(path, points, name) for path, name in zip(paths, names, strict=True)]
    title = names[0] if len(names) == 1 else f"{len(names)} runs"
    scripts = [static("fedssca.report", name) for name in (*SCRIPTS, "report.js")]
    styles = [static("fedssca.report", name) for name in STYLES]
    return assemble(f"{title} · fedssca report", {"runs": runs}, styles, scripts).text


def distinct(paths: Sequence[Path]) -> list[str]:
    """The folders' names, with as many folders above as it takes to tell them apart."""
    depth = dict.fromkeys(range(len(paths)), 1)
    while True:
        names = ["/".join(path.parts[-depth[i] :]) for i, path in enumerate(paths)]
        twins = [i for i, n in enumerate(names) if names.count(n) > 1]
        longer = [i for i in twins if depth[i] < len(paths[i].parts)]
        if not longer:
            return names
        for i in longer:
            depth[i] += 1


def assemble(
    title: str,
    data: dict[str, Any],
    styles: Sequence[str],
    scripts: Sequence[str],
    connect: str = "'none'",
) -> Page:
    """A page that runs `scripts` on `data`; `connect`: whom it may talk to."""
    style, script = "\n".join(styles), "\n".join(scripts)
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data: blob:",
            f"connect-src {connect}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    data = data | {"palette": {"light": COLOURS, "dark": ON_DARK}}
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page draws its curves with a script of its own: allow scripts to see them.</noscript>
<div id="page"></div>
<script type="application/json" id="data">{embed(data)}</script>
<script>{script}</script>
</body>
</html>
"""
    return Page(text, policy)


def embed(data: Any) -> str:
    """JSON that cannot end the element it stands in, whatever its texts hold."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def static(package: str, name: str) -> str:
    """A script or style of ours."""
    return resources.files(package).joinpath("static", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
