"""`fedssca export`: the rows of runs that are there already, for TensorBoard and MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedssca.errors import UserError
from fedssca.run.export import Places, export_run

__all__ = ["MLflow", "TensorBoard", "export"]

TensorBoard = Annotated[
    Path | None, typer.Option("--tensorboard", help="A folder for TensorBoard's event files.")
]
MLflow = Annotated[
    str | None, typer.Option("--mlflow", help="MLflow's tracking URI, e.g. sqlite:///mlflow.db")
]


def export(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, complete or not.")],
    tensorboard: TensorBoard = None,
    mlflow: MLflow = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Give the rows of runs to TensorBoard or MLflow; `run` can do so while it trains."""
    places = Places(tensorboard, mlflow)
    if not any(places):
        raise UserError("export where to? add --tensorboard DIR or --mlflow URI")
    told = {str(run): export_run(run, places) for run in runs}
    if as_json:
        print(json.dumps({"rows": told}))
    elif not quiet:
        for run, rows in told.items():
            print(f"{run}: {rows} rows")
        if tensorboard:
            print(f"look at them with: tensorboard --logdir {tensorboard}")
