"""`fedssca report`: thin, like the rest of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedssca.errors import UserError

__all__ = ["report"]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, finished or not.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path(
        "report.html"
    ),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write one HTML file about runs: curves, limits, settings; it opens anywhere, offline."""
    from fedssca.report.page import report_page
    from fedssca.run.record import RunDirectory

    for path in runs:
        RunDirectory.open(path)
    chosen = list({path.resolve(): path for path in runs}.values())
    text = report_page(chosen)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {out}: {reason}; choose another file with -o") from error
    if as_json:
        print(json.dumps({"report": str(out), "runs": [str(path) for path in chosen]}))
    elif not quiet:
        what = f"{len(chosen)} runs" if len(chosen) > 1 else "1 run"
        Console(stderr=True).print(f"{out}: {what}; open it in a browser", highlight=False)
