"""`fedssca export`: the model of a run for other programs, and rows for TensorBoard and MLflow."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from fedssca.cli.options import Json, MLflow, Personal, Quiet, TensorBoard, new_app
from fedssca.errors import UserError
from fedssca.system import starting_up

__all__ = ["app"]

app = new_app()


@app.command(epilog="Example: fedssca export runs/first --onnx model.onnx")
def export(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories; for a model one that is complete.")
    ],
    onnx: Annotated[
        Path | None,
        typer.Option(help="A file for the model as ONNX: raw columns in, probabilities out."),
    ] = None,
    sklearn: Annotated[
        Path | None, typer.Option(help="A file for the pickle of a scikit-learn classifier.")
    ] = None,
    torch: Annotated[
        Path | None, typer.Option(help="A file for the network as a program of PyTorch.")
    ] = None,
    personal: Personal = "",
    tensorboard: TensorBoard = None,
    mlflow: MLflow = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the model of a run for other programs, or its rows for TensorBoard or MLflow.

    `fedssca run` takes --tensorboard and --mlflow too and exports while it trains.
    """
    with starting_up():
        from fedssca.run.export import ExportTargets, ModelTargets, export_model, export_run

    models, trackers = ModelTargets(onnx, sklearn, torch), ExportTargets(tensorboard, mlflow)
    if not any(models) and not any(trackers):
        raise UserError(
            "the target is missing: add --onnx FILE, --sklearn FILE, --torch FILE, "
            "--tensorboard DIR or --mlflow URI"
        )
    if any(models) and len(runs) > 1:
        raise UserError("a model is exported from one run: name one run directory")
    told: dict[str, Any] = {}
    if any(models):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UserWarning)
            told["files"] = [str(path) for path in export_model(runs[0], models, personal)]
        told |= {"notes": notes} if (notes := [str(each.message) for each in said]) else {}
    if any(trackers):
        told["rows"] = {str(run): export_run(run, trackers) for run in runs}
    if as_json:
        print(json.dumps(told))
    elif not quiet:
        for note in told.get("notes", ()):
            print(f"note: {note}", file=sys.stderr)
        for path in told.get("files", ()):
            print(f"saved in {path}")
        for run, rows in told.get("rows", {}).items():
            print(f"{run}: {rows} rows")
        if tensorboard:
            print(f"look at them with: tensorboard --logdir {tensorboard}")
