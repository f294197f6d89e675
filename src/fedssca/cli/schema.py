"""`fedssca schema`: the JSON Schema of the files that users write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedssca.cli.options import new_app
from fedssca.errors import UserError, nearest

__all__ = ["app"]

app = new_app()


@app.command(epilog="Example: fedssca schema --out fedssca.schema.json")
def schema(
    kind: Annotated[
        str, typer.Option(help="Which file: run, site (site.toml) or project (project.toml).")
    ] = "run",
    out: Annotated[
        Path | None, typer.Option(help="Write to this file instead of the screen.")
    ] = None,
) -> None:
    """Print the JSON Schema of a run's TOML, for completion in editors.

    Put the line "#:schema ./fedssca.schema.json" at the top of the TOML file.
    """
    from fedssca.run.schema.json_schema import FILES, json_schema

    if kind not in FILES:
        raise UserError(f"--kind {kind}: {nearest(kind, FILES)}")
    text = json.dumps(json_schema(kind), indent=2)
    if out is None:
        print(text)
        return
    try:
        out.write_text(text + "\n")
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; check the path") from error
