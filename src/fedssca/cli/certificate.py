"""`fedssca certificate`: check what a run promises for new rows, and whether it still holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedssca.cli.options import Json, Quiet, new_app
from fedssca.system import starting_up

__all__ = ["app"]

app = new_app("Check what a run promises for new rows, and watch whether it still holds.")


@app.command(epilog="Example: fedssca certificate verify runs/joint --kit kits/submit")
def verify(
    file: Annotated[
        Path, typer.Argument(help="A certificate.json, or the run directory that holds it.")
    ],
    kit: Annotated[
        Path | None,
        typer.Option("--kit", help="Any kit of the deployment: the sites' signatures are checked."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="Calibration rows with their salt, as their holder keeps them (.npz): the "
            "commitment is checked, and its counts are counted again. May be given several times.",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check digests, numbers, model and signatures of a certificate; exit code 2 at a fault."""
    with starting_up():
        from fedssca.run.promise.verify import verify_certificate

    certificate, checked, skipped = verify_certificate(file, data or ())
    if kit is not None:
        from fedssca.deploy.signatures import check_signatures

        checked = [*checked, f"the signatures of {', '.join(check_signatures(certificate, kit))}"]
    elif certificate.signers:
        skipped = [
            *skipped,
            "the signatures: --kit KIT checks them, any kit will do (deploy local keeps none)",
        ]
    else:
        skipped = [*skipped, "signatures: a simulated run has none"]
    statement = certificate.statement
    if as_json:
        told = {name: statement[name] for name in ("certified", "confidence", "certify", "limits")}
        told |= {"digest": certificate.digest, "signers": certificate.signers}
        print(json.dumps({"verified": True, **told, "checked": checked, "not_checked": skipped}))
        return
    console = Console(quiet=quiet, highlight=False)
    for line in checked:
        console.print(f"[green]✓[/] {escape(line)}", soft_wrap=True)
    for line in skipped:
        console.print(f"○ not checked: {escape(line)}", soft_wrap=True)
    console.print(_words(statement, kit is not None), soft_wrap=True)


@app.command(epilog="Example: fedssca certificate watch runs/promise new_rows.csv")
def watch(
    run: Annotated[Path, typer.Argument(help="The run directory, simulated or deployed.")],
    rows: Annotated[
        Path, typer.Argument(help="Fresh rows with labels, a file like that of the training.")
    ],
    alpha: Annotated[
        float, typer.Option(help="The probability of a false alarm, however often you look.")
    ] = 0.05,
    state: Annotated[
        Path | None,
        typer.Option(help="The file that remembers the rows so far; default: watch.json in RUN."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Tell, on fresh rows in the order in which they come, when the promise no longer holds.

    Call it again with further rows: they are added to those before them.
    """
    with starting_up():
        from fedssca.run.promise.watch import watch as watch_run

    found = watch_run(run, rows, alpha, state)
    if as_json:
        print(json.dumps(found))
        return
    console = Console(quiet=quiet, highlight=False)
    console.print(_watched(found["limits"]))
    rate = f"{100 * found['false_alarm_rate']:g} %"
    if found["holds"]:
        said = f"[green]no alarm after {found['rows']:,} rows[/] (false alarms: at most {rate})"
    else:
        said = (
            f"[red]alarm at row {found['alarm']:,}: the promise no longer holds[/] (if it did, an "
            f"alarm would have a probability of at most {rate})"
        )
    console.print(said, soft_wrap=True)
    console.print(f"the rows so far are remembered in {escape(found['state'])}", soft_wrap=True)


def _watched(limits: list[dict[str, Any]]) -> Table:
    """Return every limit with its value on the new rows, and how near it is to an alarm."""
    from fedssca.problem.limits import limit_words

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", width=1)
    table.add_column("limit", overflow="fold", min_width=12)
    for heading in ("", "new rows", "counted", "towards alarm"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in limits:
        near = f"{max(100 * entry['evidence'], 0):.0f} %"
        alarm = near if entry["alarm"] is None else f"[red]at row {entry['alarm']:,}[/]"
        table.add_row(
            "○" if entry["alarm"] is None else "[red]✗[/]",
            escape(entry["title"]),
            limit_words(entry["low"], entry["high"]),
            "-" if entry["value"] is None else f"{entry['value']:.4f}",
            f"{entry['rows']:,}",
            alarm,
        )
    return table


def _words(statement: dict[str, Any], signed: bool) -> str:
    level = f"{100 * statement['confidence']:g} %"
    found = "the certificate is genuine" if signed else "no fault was found in the certificate"
    if statement["certified"]:
        return f"[green]{found}: the limits hold on new rows, with {level} confidence[/]"
    return f"[yellow]{found}; it does not certify the limits at {level} confidence[/]"
