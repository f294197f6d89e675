"""`fedssca reproduce` on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedssca.errors import UserError

__all__ = ["reproduce"]


def reproduce(
    names: Annotated[
        list[str], typer.Argument(help="fig1a, ..., fig4b, identity, all; or your own TOML.")
    ],
    runs: Annotated[int, typer.Option(help="Runs of every curve: seeds 0, 1, ...")] = 10,
    tuned: Annotated[
        bool,
        typer.Option("--tuned", help="Also tune every method alike, and judge speed by that."),
    ] = False,
    trials: Annotated[int, typer.Option(help="Trials of each method, with --tuned.")] = 20,
    jobs: Annotated[
        int | None, typer.Option(help="Processes at work; default: one for every core, up to 8.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Insist that there are finished runs to go on from.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("runs/reproduce"),
    cache: Annotated[
        Path | None, typer.Option(help="Folder for finished runs; default: OUT/cache.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the MNIST files; default: where `data get` is.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no tables.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout.")
    ] = False,
) -> None:
    """Draw the paper's figures again and tell which of its statements hold."""
    from fedssca.studies.reproduce.pages import print_verdicts
    from fedssca.studies.reproduce.session import reproduce_into

    if tuned and trials < 1:
        raise UserError(f"--trials {trials}: it must be at least 1")
    console = Console(stderr=True, quiet=quiet or as_json)
    try:
        panels = reproduce_into(
            out,
            names,
            runs,
            console,
            jobs=jobs,
            cache=cache,
            data=data,
            resume=resume,
            trials=trials if tuned else 0,
        )
    except KeyboardInterrupt:
        kept = cache or out / "cache"
        print(f"stopped; finished runs are in {kept}: same command again goes on", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps({"out": str(out), "panels": panels}))
    elif not quiet:
        print_verdicts(panels, out)
