"""`fedssca predict`: predictions of a trained model for the rows of a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.cli.options import Json, Personal, Quiet, new_app
from fedssca.errors import UserError
from fedssca.system import starting_up

if TYPE_CHECKING:
    from fedssca.run.model import Predictions

__all__ = ["Out", "app", "give"]

app = new_app()
Row = dict[str, Any]
Out = Annotated[Path | None, typer.Option("--out", help="The CSV file to write; default: stdout.")]


@app.command(epilog="Example: fedssca predict runs/first new.csv --out predictions.csv")
def predict(
    run: Annotated[Path, typer.Argument(help="The run directory, simulated or deployed.")],
    rows: Annotated[
        list[Path],
        typer.Argument(
            help="The rows: files like those of the training. The files of parties with columns "
            "are joined by id."
        ),
    ],
    out: Out = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column of the file to copy beside its ids.")
    ] = None,
    personal: Personal = "",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Predict the rows of a file with the model of a finished run.

    The file has the raw columns of the training file and needs no labels. If it has labels, the
    loss, the accuracy (of a regression: RMSE, MAE and R²) and every limit on its rows are shown.
    """
    with starting_up():
        from fedssca.run.model import load_model, predict_rows

    given: Any = rows if len(rows) > 1 else rows[0]
    found = predict_rows(load_model(run, personal), given, " and ".join(map(str, rows)), keep or ())
    give(found, out, quiet, as_json)


def give(found: Predictions, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Write predictions to a file or to stdout, and show what is known of them."""
    from fedssca.run.model import write_predictions

    if out is not None:
        try:
            with open(out, "w", newline="", encoding="utf-8") as stream:
                write_predictions(found, stream)
        except OSError as error:
            raise UserError(
                f"cannot write {out}: {error.strerror or error}; choose another --out"
            ) from None
    elif not as_json:
        write_predictions(found, sys.stdout)
    if as_json:
        print(json.dumps(_told(found, out)))
        return
    # Predictions on stdout are left alone: whatever else is said goes to stderr.
    console = Console(stderr=out is None, quiet=quiet, highlight=False)
    for note in found.notes:
        console.print(f"[yellow]note: {escape(note)}[/]", soft_wrap=True)
    if found.evaluation is not None:
        _show(console, found.evaluation)
    if out is not None:
        console.print(f"{len(found.probabilities):,} rows predicted: {escape(_summary(found))}")
        console.print(f"saved in {escape(str(out))}", soft_wrap=True)


def _told(found: Predictions, out: Path | None) -> Row:
    """The predictions as one JSON object; row by row if they are in no file."""
    told: Row = {"rows": len(found.probabilities), "classes": list(found.classes)}
    if found.numbers is None:
        told["predicted"] = found.counts
    told["notes"] = list(found.notes)
    told["evaluation"] = found.evaluation
    if out is not None:
        return told | {"out": str(out)}
    told |= {"ids": found.ids, "predictions": found.predicted}
    if found.numbers is None:
        told["probabilities"] = found.probabilities.tolist()
    return told


def _summary(found: Predictions) -> str:
    """The predictions in few words."""
    if found.numbers is not None:
        return f"{found.numbers.min():.4g} to {found.numbers.max():.4g}"
    return ", ".join(f"{count:,} {name}" for name, count in found.counts.items())


def _show(console: Console, evaluation: Row) -> None:
    from fedssca.problem.limits import limit_words
    from fedssca.problem.task_kinds import METRICS

    known = {name: metric for name, metric in METRICS.items() if name in evaluation}
    values = {"loss": f"{evaluation['cost']:.4f}"}
    values |= {metric.words: metric.shown(evaluation[name]) for name, metric in known.items()}
    words = ", ".join(f"{name} {value}" for name, value in values.items())
    console.print(f"on {evaluation['rows']:,} rows with labels: {words}")
    limits = evaluation["limits"]
    if not limits:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", width=1)
    table.add_column("limit", overflow="fold", min_width=12)
    for heading in ("", "value", "counts"):
        table.add_column(heading, justify="right")
    for entry in limits:
        sign = {True: "[green]✓[/]", False: "[red]✗[/]"}.get(entry.get("kept"), "○")
        table.add_row(
            sign,
            escape(entry["title"]),
            limit_words(entry["low"], entry["high"]),
            f"{entry['value']:.4f}" if "value" in entry else "-",
            _fractions(entry),
        )
    console.print(table)
    for why in dict.fromkeys(entry["unchecked"] for entry in limits if "unchecked" in entry):
        console.print(f"○ not checked: {why}")


def _fractions(entry: Row) -> str:
    parts = entry.get("counts", [])
    if any(isinstance(number, float) for part in parts for number in part):
        return " and ".join(f"{round(rows):,} rows" for _, rows in parts)
    return " against ".join(f"{hits:,} of {rows:,}" for hits, rows in parts)
