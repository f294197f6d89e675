"""`fedssca bench`: one command, one run, one machine; tables, CSV, PNG and JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from fedssca.errors import UserError
from fedssca.system import on_signal

__all__ = ["bench"]

SECTIONS = ("limit", "peers", "growth")


def bench(
    only: Annotated[
        str | None, typer.Option(help="One section only: limit, peers or growth.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = Path("runs/bench"),
    venvs: Annotated[
        Path | None, typer.Option(help="Environments of peers; default: the cache folder.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short and rough.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure a round: against its matrix products, against other frameworks, and as it grows."""
    if only is not None and only not in SECTIONS:
        from fedssca.run.config import nearest

        raise UserError(f"--only {only}: {nearest(only, SECTIONS)}")
    console = Console(stderr=True, quiet=quiet or as_json)
    try:
        with on_signal(signal.SIGTERM, _stop), console.status("preparing") as status:
            found = measure_all(
                (only,) if only else SECTIONS,
                venvs,
                quick,
                lambda text: status.update(escape(text)),
                lambda text: console.print(f"[yellow]note:[/] {escape(text)}", highlight=False),
            )
    except KeyboardInterrupt:
        print("stopped: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    from fedssca.studies.bench.report import print_found, save

    written = save(found, out)
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        print_found(found)
        console.print(f"saved in {out}: {', '.join(p.name for p in written)}", highlight=False)


def measure_all(
    sections: tuple[str, ...], venvs: Path | None, quick: bool, tick: Any, note: Any
) -> dict[str, Any]:
    """The chosen sections, one after another, as one JSON object."""
    from fedssca.data import cache_folder
    from fedssca.studies.bench.costs import measure_costs
    from fedssca.studies.bench.growth import measure_growth
    from fedssca.studies.bench.limit import measure_limit
    from fedssca.studies.bench.peers import Plan, folder, measure_peers
    from fedssca.studies.bench.task import images
    from fedssca.studies.bench.timing import machine

    if sections == ("peers",):
        folder()
    tick("reading the data")
    data = images()
    found: dict[str, Any] = {"machine": machine(), "quick": quick}
    found["data"] = data.name
    load, processors = found["machine"]["load_before"], os.cpu_count() or 1
    if load is not None and load > processors / 4:
        note(f"the machine is busy (load {load} on {processors} processors): take these as rough")
    home = (venvs or cache_folder() / "bench").expanduser().absolute()
    turns, seconds = (2, 0.03) if quick else (15, 0.2)
    if "limit" in sections:
        found |= measure_limit(data, turns, seconds, tick)
        found |= measure_costs(data, turns, seconds, tick)
    if "peers" in sections:
        plan = Plan(threads=os.cpu_count() or 1)
        if quick:
            plan = dataclasses.replace(plan, rounds=40, warmup=5, seconds=0.3)
        try:
            found |= measure_peers(data, plan, 1 if quick else 3, home, tick)
        except UserError as error:
            if sections == ("peers",):
                raise
            note(str(error))
    if "growth" in sections:
        found |= measure_growth(data, max(2, turns // 3), seconds / 2, home, quick, tick)
    return found


def _stop(*_: object) -> None:
    """A polite request to end (SIGTERM) cleans up as Ctrl-C does."""
    raise KeyboardInterrupt
