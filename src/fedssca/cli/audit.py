"""`fedssca audit`: what observers of a run could learn, before any data moves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedssca.cli.options import (
    Json,
    Quiet,
    Settings,
    data_name,
    new_app,
    progress_console,
    read_config,
    timestamp,
)
from fedssca.errors import UserError
from fedssca.run.progress import ProgressLine
from fedssca.system import starting_up

if TYPE_CHECKING:
    from fedssca.run.config import Config
    from fedssca.studies.audit.report import Audit

__all__ = ["app"]

app = new_app()


@app.command(epilog="Example: fedssca audit my.toml --set algorithm.batch=32 --attack")
def audit(
    file: Annotated[Path, typer.Argument(help="The run as TOML.")],
    settings: Settings = None,
    attack: Annotated[
        bool,
        typer.Option("--attack", help="Try to reconstruct the first batch from the messages."),
    ] = False,
    privacy: Annotated[
        bool,
        typer.Option(
            "--privacy",
            help="Check epsilon instead: canary rows, and the lower bound that an attack proves.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for the result; default: runs/audit-<time>-<data>."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Tell what each observer of a run could learn about its data.

    The messages of the run are computed on this machine; no model is trained and nothing is sent.
    """
    with starting_up():
        from fedssca.studies.audit.report import audit as examine
        from fedssca.studies.audit.report import print_audit

    config = read_config(file, settings)
    if privacy:
        _check_epsilon(config, quiet, as_json)
        return
    folder = out or Path("runs") / f"audit-{timestamp()}-{data_name(config)}"
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder}: it is a file, name a folder")
    console = progress_console(quiet, as_json)
    try:
        with ProgressLine(console, "the audit") as line, line.noting_warnings():
            found = examine(config, attack, line.preparing)
            written = _save(folder, found)
    except KeyboardInterrupt:
        print("stopped: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(found.found))
    elif not quiet:
        print_audit(found.found, Console())
        console.print(f"saved in {folder}: {', '.join(written)}", highlight=False)


def _check_epsilon(config: Config, quiet: bool, as_json: bool) -> None:
    """Print the claimed epsilon beside the lower bound; exit with 1 if the bound is above it."""
    from fedssca.studies.audit.canaries import audit_epsilon

    console = progress_console(quiet, as_json)
    with ProgressLine(console, "the audit") as line, line.noting_warnings():
        line.preparing("attacking the messages of a client with canaries")
        found = audit_epsilon(config)
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        holds = "below the claim" if found["holds"] else "ABOVE the claim: the account is wrong"
        Console(highlight=False).print(
            f"claimed epsilon      {found['claimed_epsilon']:.3f} (delta {found['delta']:g})\n"
            f"lower bound          {found['lower_bound']:.3f} with {found['confidence']:.0%} "
            f"confidence, {holds}\n"
            f"canaries             {found['canaries']:,} of {found['rows']:,} rows: "
            f"{found['found']}\n"
            f"messages             {found['messages']:,}, noise multiplier "
            f"{found['noise_multiplier']:.3f}, sampling rate {found['sampling_rate']:.4g}",
            soft_wrap=True,
        )
    if not found["holds"]:
        raise typer.Exit(1)


def _save(folder: Path, found: Audit) -> list[str]:
    """Write audit.json, and a picture if there was an attack; return the names of the files."""
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
