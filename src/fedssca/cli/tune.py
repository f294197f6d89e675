"""`fedssca tune`: search the settings of several methods."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.cli.options import (
    Json,
    Quiet,
    Settings,
    new_app,
    progress_console,
    read_config,
    separated,
)
from fedssca.problem.task_kinds import METRICS
from fedssca.run.progress import ProgressLine
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
        from fedssca.run.tune.session import tune_into

    config = read_config(file, settings)
    names = None if methods is None else separated(methods)
    folder = out or Path("runs") / f"tune-{file.stem}"
    seed = config.run.seed if seed is None else seed
    try:
        console = progress_console(quiet, as_json)
        with ProgressLine(console, "the first trial") as line, line.noting_warnings():
            found = tune_into(folder, config, names, trials, seed, line, resume)
    except KeyboardInterrupt:
        if (folder / "trials.jsonl").exists():
            print(
                f"stopped; finished trials are in {folder}: the same command continues",
                file=sys.stderr,
            )
        else:
            print("stopped before the first round: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        _print_search(found)


def _print_search(found: dict[str, Any]) -> None:
    """Print the best trial of every method in 80 columns, and where the files are."""
    limits, norm = found["constrained"], found["objective"] == "norm"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("method", no_wrap=True)
    for heading in ("trials", "kept", "|w|²" if norm else "val. cost", "val. acc."):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("settings", overflow="fold")
    for name, trial in found["best"].items():
        settings = " ".join(f"{k.split('.', 1)[1]}={v:g}" for k, v in trial["settings"].items())
        ended = not trial["diverged"]
        miss = trial["violation"] or 0.0
        kept = "[green]yes[/]" if trial["feasible"] else f"[red]NO[/], by {miss:.2g}"
        table.add_row(
            name,
            str(found["trials_per_method"]),
            kept if limits and ended else "-",
            f"{trial['objective']:.4g}" if ended else "[red]diverged[/]",
            METRICS["accuracy"].shown(trial["validation_accuracy"]) if ended else "-",
            settings or "automatic",
        )
    console = Console(highlight=False)
    console.print(table)
    lost = dict.fromkeys(found["best"], 0)
    for trial in found["trials"]:
        lost[trial["method"]] += bool(trial["diverged"])
    if any(lost.values()):
        counts = ", ".join(f"{name} {count}" for name, count in lost.items() if count)
        console.print(f"diverged trials: {counts}", soft_wrap=True)
    out = escape(found["out"])
    console.print(
        f"saved in {out}; continue with: fedssca run {out}/best-METHOD.toml", soft_wrap=True
    )
