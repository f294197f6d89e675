"""`fedssca run`: train as a TOML file says."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedssca.cli.options import (
    Json,
    MLflow,
    More,
    Quiet,
    Settings,
    TensorBoard,
    check_more,
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
    from fedssca.run.export import ExportTargets

__all__ = ["app"]

app = new_app()


@app.command(epilog="Example: fedssca run my.toml --set algorithm.rounds=1000 --out runs/first")
def run(
    file: Annotated[
        Path | None, typer.Argument(help="The run as TOML; default: the embedded example.")
    ] = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The run directory; default: runs/<time>-<data>.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this directory.")] = None,
    more: More = None,
    new_data: Annotated[
        bool,
        typer.Option("--new-data", help="With --resume: continue although the data have changed."),
    ] = False,
    twin: Annotated[
        bool, typer.Option("--twin", help="Also run the same problem without its constraints.")
    ] = False,
    tensorboard: TensorBoard = None,
    mlflow: MLflow = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model as a TOML file says.

    Without a file the embedded example is trained: the digits data, divided among ten clients.
    """
    with starting_up():
        from fedssca.cli.results import draw_run_curves, print_results
        from fedssca.run.curves import TWIN
        from fedssca.run.execute import load_config
        from fedssca.run.export import ExportTargets
        from fedssca.run.more import with_more_rounds
        from fedssca.run.record import RunDirectory

    check_more(more, resume)
    if new_data and resume is None:
        raise UserError("--new-data continues a run: name its directory with --resume")
    if resume is not None:
        if file or settings or out:
            raise UserError("--resume takes the run as it is: leave out the file, --set and --out")
        folder, config = resume, load_config(resume)
        if more is not None:
            config = with_more_rounds(RunDirectory.open(resume), more)
    else:
        config = read_config(file, settings)
        folder = out or Path("runs") / f"{timestamp()}-{data_name(config)}"
    plan = {folder: config}
    if twin:
        plan[folder.with_name(folder.name + TWIN)] = without_constraints(config)
    continued = {path: resume is not None and (path / "config.toml").exists() for path in plan}
    complete = all(continued[path] and (path / "result.json").exists() for path in plan)
    for path in plan:
        if not continued[path]:
            RunDirectory.check_free(path)
        elif more is not None and path != folder:
            plan[path] = with_more_rounds(RunDirectory.open(path), more)
    longer = {path: continued[path] and more is not None for path in plan}
    targets = ExportTargets(tensorboard, mlflow)
    targets.check()
    console, shown = progress_console(quiet, as_json), set[str]()
    try:
        results = {
            path: _train(
                path, each, continued[path], longer[path], new_data, targets, console, shown
            )
            for path, each in plan.items()
        }
    except KeyboardInterrupt:
        if (folder / "config.toml").exists():
            also = " --twin" if twin else ""
            print(f"stopped; continue with: fedssca run --resume {folder}{also}", file=sys.stderr)
        else:
            print("stopped before the first round: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    if not complete or any(longer.values()) or not (folder / "curves.png").exists():
        draw_run_curves(plan)
    if as_json:
        first, *others = results.values()
        print(json.dumps(first | ({"twin": others[0]} if others else {})))
    elif not quiet:
        print_results(results)


def without_constraints(config: Config) -> Config:
    """Return the same run with the loss as its objective and no constraints."""
    problem = dataclasses.replace(
        config.problem, objective="loss", column=None, constraint=[], confidence=None
    )
    algorithm = config.algorithm
    if algorithm.probes:  # step sizes that were calibrated for the constraints do not fit
        algorithm = dataclasses.replace(
            algorithm, multipliers=None, tau=None, opening=None, balance=None, probes=0
        )
    return dataclasses.replace(config, problem=problem, algorithm=algorithm)


def _train(
    folder: Path,
    config: Config,
    resume: bool,
    more: bool,
    new_data: bool,
    targets: ExportTargets,
    console: Console,
    shown: set[str],
) -> dict[str, Any]:
    """Carry out one run with a progress line; warnings become notes."""
    from fedssca.run.execute import execute
    from fedssca.run.export import exporting

    with (
        ProgressLine(console, folder.name, config.algorithm.most_rounds, shown=shown) as line,
        line.noting_warnings(),
        exporting(folder, targets) as export,
    ):

        def show(row: dict[str, Any]) -> None:
            export(row)
            line.show_row(row)

        return execute(config, folder, resume=resume, more=more, new_data=new_data, on_row=show)
