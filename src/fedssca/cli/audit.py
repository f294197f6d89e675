"""`fedssca audit`: where a run stands, before any data moves."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedssca.errors import UserError
from fedssca.run.config import parse, read

if TYPE_CHECKING:
    from fedssca.studies.audit.report import Audit

__all__ = ["audit"]


def audit(
    file: Annotated[Path, typer.Argument(help="The run as TOML.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: section.key=value.")
    ] = None,
    attack: Annotated[
        bool, typer.Option("--attack", help="Rebuild the first batch from what is sent.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder; default: runs/audit-<time>-<data>.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """What each observer of a run could work out about its data; nothing is trained or sent."""
    config = parse(read(file), settings or (), source=str(file))
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = Path(config.data.path).stem or config.data.name
    folder = out or Path("runs") / f"audit-{stamp}-{name}"
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder}: it is a file, name a folder")
    console = Console(stderr=True, quiet=quiet or as_json)
    from fedssca.studies.audit.report import audit as look
    from fedssca.studies.audit.report import print_audit

    try:
        with console.status("preparing") as status:
            found = look(config, attack, lambda text: status.update(escape(text)))
            written = _save(folder, found)
    except KeyboardInterrupt:
        print("stopped: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(found.found))
    elif not quiet:
        print_audit(found.found, Console())
        console.print(f"saved in {folder}: {', '.join(written)}", highlight=False)


def _save(folder: Path, found: Audit) -> list[str]:
    """audit.json, and the picture if there was an attack."""
    from fedssca.studies.audit.figure import draw

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "audit.json").write_text(json.dumps(found.found, indent=1) + "\n")
        if not found.rebuilt:
            return ["audit.json"]
        title = f"{found.found['data']}, batch {found.found['batch']}: what the server can rebuild"
        with open(folder / "audit.png", "wb") as file:
            draw(file, title, found.originals, found.rebuilt, found.side)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}") from error
    return ["audit.json", "audit.png"]
