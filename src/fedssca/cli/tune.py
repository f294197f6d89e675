"""`fedssca tune`: search the settings of several methods."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedssca.cli.options import Json, Quiet, Settings, new_app, progress_console, read_config
from fedssca.system import starting_up

__all__ = ["app"]

app = new_app()


@app.command(epilog="Example: fedssca tune my.toml --methods ssca,primal-dual --trials 12")
def tune(
    file: Annotated[Path, typer.Argument(help="The run as TOML.")],
    methods: Annotated[
        str | None,
        typer.Option(help="Names separated by commas; default: all methods that fit the problem."),
    ] = None,
    trials: Annotated[int, typer.Option(help="The number of trials of each method.")] = 12,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the trials; default: runs/tune-<file>.")
    ] = None,
    settings: Settings = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The seed of the search and of the validation rows; default: run.seed."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Fail unless --out holds trials to continue from.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search settings for each method, with the same number of trials for all.

    Each trial trains on 80 % of the training rows and is compared on the rest. The test rows are
    never used. The same command continues a search that was stopped.
    """
    with starting_up():
        from fedssca.run.tune_session import print_search, tune_into

    config = read_config(file, settings)
    names = None if methods is None else [n.strip() for n in methods.split(",") if n.strip()]
    folder = out or Path("runs") / f"tune-{file.stem}"
    console = progress_console(quiet, as_json)
    seed = config.run.seed if seed is None else seed
    try:
        found = tune_into(folder, config, names, trials, seed, console, resume)
    except KeyboardInterrupt:
        if (folder / "trials.jsonl").exists():
            print(f"stopped; finished trials are in {folder}: same command again", file=sys.stderr)
        else:
            print("stopped before the first round: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        print_search(found)
