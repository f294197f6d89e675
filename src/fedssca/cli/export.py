"""`fedssca export`: the rows of existing runs for TensorBoard and MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedssca.cli.options import Json, MLflow, Quiet, TensorBoard, new_app
from fedssca.errors import UserError
from fedssca.system import starting_up

__all__ = ["app"]

app = new_app()


@app.command(epilog="Example: fedssca export runs/first --tensorboard board")
def export(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, complete or not.")],
    tensorboard: TensorBoard = None,
    mlflow: MLflow = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Give the rows of runs to TensorBoard or MLflow.

    `fedssca run` has the same options and does this while it trains.
    """
    with starting_up():
        from fedssca.run.export import ExportTargets, export_run

    targets = ExportTargets(tensorboard, mlflow)
    if not any(targets):
        raise UserError("the target is missing: add --tensorboard DIR or --mlflow URI")
    rows_of = {str(run): export_run(run, targets) for run in runs}
    if as_json:
        print(json.dumps({"rows": rows_of}))
    elif not quiet:
        for run, rows in rows_of.items():
            print(f"{run}: {rows} rows")
        if tensorboard:
            print(f"look at them with: tensorboard --logdir {tensorboard}")
