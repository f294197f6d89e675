"""`fedssca report`: one HTML file about runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedssca.cli.options import Json, Quiet, new_app, progress_console
from fedssca.errors import UserError
from fedssca.system import starting_up

__all__ = ["app"]

app = new_app()


@app.command(
    epilog="Examples: fedssca report runs/first runs/second -o report.html, or "
    "fedssca report --card runs/first -o card.html"
)
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, finished or not.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path(
        "report.html"
    ),
    card: Annotated[
        bool,
        typer.Option(
            "--card",
            help="Write the model card of one run instead: purpose, data, limits asked and "
            "promised, price, privacy. With a file name that ends in .md: as Markdown.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write one HTML file about runs that opens in any browser, offline.

    It shows curves, limits and settings of each run, and compares them. With --card it is a model
    card for readers who did not train the model.
    """
    with starting_up():
        from fedssca.report.card import card_page
        from fedssca.report.page import report_page
        from fedssca.run.record import RunDirectory

    for path in runs:
        RunDirectory.open(path)
    chosen = list({path.resolve(): path for path in runs}.values())
    if card and len(chosen) > 1:
        raise UserError("a model card is about one run: name one run directory with --card")
    text = card_page(chosen[0], markdown=out.suffix == ".md") if card else report_page(chosen)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {out}: {reason}; choose another file with -o") from error
    if as_json:
        print(json.dumps({"report": str(out), "runs": [str(path) for path in chosen]}))
    elif not quiet:
        what = f"{len(chosen)} runs" if len(chosen) > 1 else "1 run"
        console = progress_console(quiet, as_json)
        console.print(f"{out}: {what}; open it in a browser", highlight=False)
