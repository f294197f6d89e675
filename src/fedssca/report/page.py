"""A page as one HTML file that contains its style, its script and its data.

The content security policy of the page names the hashes of that style and that script, so the
browser runs nothing else, whatever the data contain. The report may not connect to any host.
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

from fedssca.report.bundle import bundle
from fedssca.report.gather import gather
from fedssca.report.methods import runs_trainings
from fedssca.run.curves import COLOURS

__all__ = ["Page", "assemble", "content_policy", "report_page", "script", "style"]

STYLES = ("static/base.css", "static/parts.css", "static/details.css")
POINTS = 40_000
"""Points per curve of all runs in a report together."""
ON_DARK = ("#5AB4F0", "#FF8F45", "#2CC796", "#E9A6CD", "#F5B93A", "#F0E442", "#F4F4F4")
"""The colours of the dark theme, in the order of COLOURS."""


class Page(NamedTuple):
    """The text of an HTML page and its content security policy."""

    text: str
    policy: str


def report_page(paths: Sequence[Path]) -> str:
    """The report of runs: curves, tables and certificates."""
    names = distinct_names([path.resolve() for path in paths])
    points = min(2000, max(60, POINTS // len(paths)))
    runs = [gather(path, points, name) for path, name in zip(paths, names, strict=True)]
    title = names[0] if len(names) == 1 else f"{len(names)} runs"
    page = assemble(
        f"{title} · fedssca report",
        {"runs": runs, "trainings": runs_trainings(paths, names)},
        style(),
        script("static/report.js"),
    )
    return page.text


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """The names of folders, preceded by as many parent folders as are needed to tell them apart."""
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
    style: str,
    script: str,
    connect: str = "'none'",
) -> Page:
    """A page that runs `script` on `data`; `connect` is the policy for connections to hosts."""
    policy = content_policy(style, f"script-src {_hash(script)}", f"connect-src {connect}")
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
<noscript>Allow scripts to see this page: its own script draws the curves.</noscript>
<div id="page"></div>
<script type="application/json" id="data">{embed(data)}</script>
<script>{script}</script>
</body>
</html>
"""
    return Page(text, policy)


def content_policy(style: str, *more: str) -> str:
    """The content security policy of a page with this style: nothing else is loaded or run."""
    known = ["default-src 'none'", f"style-src {_hash(style)}", "img-src data: blob:", *more]
    return "; ".join([*known, "base-uri 'none'", "form-action 'none'"])


def embed(data: Any) -> str:
    """JSON for a script element; no text within it can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def style(*more: str) -> str:
    """The style of the report, followed by the style sheets `more`."""
    return "\n".join(read_source(path) for path in (*STYLES, *more))


def script(entry: str) -> str:
    """The module `entry` with all modules that it imports, as one script."""
    return bundle(entry, read_source)


def read_source(path: str) -> str:
    """A script or style sheet of this package."""
    return resources.files("fedssca.report").joinpath(*path.split("/")).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
