"""`fedssca reproduce`: the figures of the paper."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedssca.cli.options import Json, Quiet, new_app, progress_console
from fedssca.errors import UserError
from fedssca.run.progress import ProgressLine
from fedssca.system import starting_up

__all__ = ["app"]

app = new_app()


@app.command(epilog="Example: fedssca reproduce fig1a fig1b --runs 10")
def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(help="fig1a, ..., fig4b, identity, all; or a TOML file of your own."),
    ],
    runs: Annotated[
        int, typer.Option(help="The number of runs of each curve, with the seeds 0, 1, ...")
    ] = 10,
    tuned: Annotated[
        bool,
        typer.Option(
            "--tuned", help="Also tune all methods with the same budget and compare their speed."
        ),
    ] = False,
    trials: Annotated[
        int, typer.Option(help="With --tuned: the number of trials of each method.")
    ] = 20,
    jobs: Annotated[
        int | None, typer.Option(help="The number of processes; default: one per core, at most 8.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Fail unless there are finished runs to continue from.")
    ] = False,
    cached: Annotated[
        bool,
        typer.Option("--cached", help="Train nothing: draw the figures whose runs are finished."),
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder for the figures.")] = Path("runs/reproduce"),
    cache: Annotated[
        Path | None, typer.Option(help="The folder for finished runs; default: OUT/cache.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder with the MNIST files; default: where `data get` puts them."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw the figures of the paper again and check its statements.

    The same command continues a study that was stopped: finished runs are kept.
    """
    with starting_up():
        from fedssca.studies.reproduce.pages import print_verdicts
        from fedssca.studies.reproduce.session import reproduce_into

    if tuned and trials < 1:
        raise UserError(f"--trials {trials}: it must be at least 1")
    try:
        with ProgressLine(progress_console(quiet, as_json), "the figures", percent=True) as line:
            panels = reproduce_into(
                out,
                names,
                runs,
                line,
                jobs=jobs,
                cache=cache,
                data=data,
                resume=resume,
                trials=trials if tuned else 0,
                train=not cached,
            )
    except KeyboardInterrupt:
        kept = cache or out / "cache"
        print(f"stopped; finished runs are in {kept}: the same command continues", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps({"out": str(out), "panels": panels}))
    elif not quiet:
        print_verdicts(panels, out)
