"""`fedssca psi`: the rows that all parties have, in one order (private set intersection)."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedssca.cli.options import Json, Quiet, new_app, progress_console
from fedssca.errors import UserError
from fedssca.run.progress import ProgressLine
from fedssca.system import starting_up

if TYPE_CHECKING:
    from fedssca.data.ids import TableWithIds

__all__ = ["app"]

app = new_app()

PAUSE = 0.5
"""Seconds between two looks into the shared folder."""


@app.command(epilog="Example: fedssca psi clinic.csv lab.csv --id patient --out aligned")
def psi(
    files: Annotated[list[Path], typer.Argument(help="Tables (CSV, Parquet, NPZ), one per party.")],
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            help="The column with the ids (in NPZ: the array); one for all files or one per file.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for the aligned tables.")] = Path("aligned"),
    meet: Annotated[
        Path | None,
        typer.Option(
            help="A folder that the parties share; this command is one party, with one file."
        ),
    ] = None,
    me: Annotated[str, typer.Option(help="With --meet: the name of this party.")] = "",
    others: Annotated[
        str, typer.Option("--with", help="With --meet: the other parties, separated by commas.")
    ] = "",
    wait: Annotated[
        float,
        typer.Option(help="With --meet: seconds to wait for the others; 0 does one step only."),
    ] = 3600.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find the rows that all parties have, without showing the other rows.

    Each table is written again with the common rows only, all tables in the same order. Several
    files are all parties in one process, as a trial. With --meet every party runs the command with
    its own file, and .psi files pass between the parties in the shared folder; the same command
    continues where it stopped. No party sees an id that it does not have.
    """
    with starting_up():
        from fedssca.data.ids import open_with_ids

    if meet is not None and len(files) != 1:
        raise UserError("--meet takes one file: each party runs the command with its own")
    if meet is None and (me or others):
        raise UserError("--me and --with go with --meet FOLDER")
    if meet is None and len(files) < 2:
        raise UserError("name two files or more, or one file with --meet FOLDER")
    names = ids or ["ids"]
    if len(names) not in (1, len(files)):
        raise UserError(f"--id was given {len(names)} times for {len(files)} files: once, or each")
    if len(set(files)) < len(files):
        raise UserError("a file is named twice: name one file for each party")
    columns = names * len(files) if len(names) == 1 else names
    targets = _targets(files, out)
    tables = [open_with_ids(path, column) for path, column in zip(files, columns, strict=True)]
    console = progress_console(quiet, as_json)
    begun = time.perf_counter()
    if meet is None:
        outcome = _all_parties(dict(zip(map(str, files), tables, strict=True)), targets, console)
    else:
        outcome = _one_party(tables[0], targets[0], meet, me, others, wait, console)
    outcome["seconds"] = round(time.perf_counter() - begun, 3)
    if as_json:
        print(json.dumps(outcome))
    elif not quiet:
        print(_in_words(outcome))


def _all_parties(
    tables: Mapping[str, TableWithIds], targets: Sequence[Path], console: Console
) -> dict[str, Any]:
    """Align the tables of all parties in this process."""
    from fedssca.data.ids import form_of, misfit
    from fedssca.privacy.psi.protocol import intersect, multiplications, rows_by_part, tagged_ids

    sets = [tagged_ids(table.parts) for table in tables.values()]
    forms = {name: form_of(_all(table)) for name, table in tables.items()}
    if line := misfit(forms):
        raise UserError(line)
    try:
        with _bar(console, "aligning", multiplications([len(ids) for ids in sets])) as bar:
            found = intersect(sets, bar.advance)
    except KeyboardInterrupt:
        print("stopped: nothing was written", file=sys.stderr)
        raise typer.Exit(130) from None
    rows = [rows_by_part(t.parts, r) for t, r in zip(tables.values(), found, strict=True)]
    for own, table in zip(rows, tables.values(), strict=True):
        _check_some(own, table)
    parties = {
        name: _written(table, own, target)
        for (name, table), own, target in zip(tables.items(), rows, targets, strict=True)
    }
    return {"state": "done", "common": len(found[0]), "parties": parties}


def _one_party(
    table: TableWithIds,
    target: Path,
    folder: Path,
    me: str,
    others: str,
    wait: float,
    console: Console,
) -> dict[str, Any]:
    """Do the work of one party, by files in a shared folder."""
    from fedssca.data.ids import form_of
    from fedssca.privacy.psi.folder import FolderAlignment
    from fedssca.privacy.psi.protocol import rows_by_part, tagged_ids

    target.parent.mkdir(parents=True, exist_ok=True)
    secret = target.parent / f"{me}.secret"
    peers = [name.strip() for name in others.split(",") if name.strip()]
    ids = tagged_ids(table.parts)
    meeting = FolderAlignment(folder, me, peers, ids, form_of(_all(table)), secret)
    until = time.monotonic() + wait
    try:
        while missing := _step(meeting, console):
            if wait <= 0:
                return {"state": "waiting", "missing": missing, "folder": str(folder)}
            with _bar(console, "files") as line:
                line.preparing(f"waiting for {', '.join(missing)} in {folder}")
                come = meeting.wait(missing, until, PAUSE)
            if not come:
                raise UserError(
                    f"{missing[0]} did not come to {folder} in {wait:.0f} s; the same command "
                    "continues"
                )
    except KeyboardInterrupt:
        print("stopped; the same command continues", file=sys.stderr)
        raise typer.Exit(130) from None
    found = meeting.finish()
    own = rows_by_part(table.parts, found.rows)
    _check_some(own, table)
    party = _written(table, own, target)
    meeting.forget()
    return {
        "state": "done",
        "common": len(found.rows),
        "parties": {me: party},
        "sizes": found.sizes,
        "code": found.code,
    }


def _step(meeting: Any, console: Console) -> list[str]:
    with _bar(console, "multiplying") as line:
        return meeting.proceed(line.advance)


def _all(table: TableWithIds) -> list[str]:
    return [name for part in table.parts.values() for name in part]


def _targets(files: Sequence[Path], out: Path) -> list[Path]:
    """Where each aligned table goes; nothing is overwritten."""
    names = [file.name for file in files]
    alike = len({Path(name).stem for name in names}) < len(names)
    targets = [
        out / (f"{number}-{name}" if alike else name) for number, name in enumerate(names, 1)
    ]
    for target in targets:
        for file in (target, _order_file(target)):
            if file.exists():
                raise UserError(f"{file} is already there: choose another --out")
    return targets


def _order_file(target: Path) -> Path:
    return target.with_suffix(".rows.csv")


def _check_some(rows: Mapping[str, Any], table: TableWithIds) -> None:
    for part, own in rows.items():
        if not len(own):
            what = "test rows" if part == "test" else "rows"
            raise UserError(
                f"no id of the {what} is at all parties ({len(table.parts[part])} here); are the "
                "id columns the right ones, and written alike?"
            )


def _written(table: TableWithIds, rows: Mapping[str, Any], target: Path) -> dict[str, Any]:
    """The aligned table, and beside it which row each line was."""
    order = _order_file(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        table.write(target, rows)
        with open(order, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["part", "row", "id"])
            for part, own in rows.items():
                writer.writerows([part, row + 1, table.parts[part][row]] for row in own.tolist())
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}") from None
    total, kept = len(_all(table)), sum(len(own) for own in rows.values())
    files = {"file": str(target), "order": str(order)}
    return {"rows": total, "left_out": total - kept, **files}


def _in_words(outcome: Mapping[str, Any]) -> str:
    if outcome["state"] == "waiting":
        return (
            f"waiting for {', '.join(outcome['missing'])}: bring the .psi files of all parties "
            f"together in {outcome['folder']} and run the same command again"
        )
    lines = [f"{outcome['common']} rows are common to all"]
    for name, party in outcome["parties"].items():
        lines.append(f"{name}: {party['left_out']} of {party['rows']} left out; {party['file']}")
    if "code" in outcome:
        lines.append(f"check code {outcome['code']}: all parties must read the same one")
    return "\n".join(lines)


def _bar(console: Console, name: str, total: int | None = None) -> ProgressLine:
    return ProgressLine(console, name, total, transient=True)
