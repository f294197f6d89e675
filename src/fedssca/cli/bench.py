"""`fedssca bench`: time measurements as tables, CSV, PNG and JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedssca.cli.options import Json, Quiet, new_app, progress_console
from fedssca.cli.progress import ProgressLine
from fedssca.errors import UserError, nearest
from fedssca.system import on_signal, starting_up

__all__ = ["app"]

app = new_app()
SECTIONS = ("limit", "peers", "growth")


@app.command(epilog="Example: fedssca bench --only limit --json")
def bench(
    only: Annotated[
        str | None, typer.Option(help="Measure one section only: limit, peers or growth.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for tables and figures.")] = Path(
        "runs/bench"
    ),
    venvs: Annotated[
        Path | None,
        typer.Option(
            help="The folder for environments of other frameworks; default: the cache folder."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure briefly and roughly.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure the time of a round.

    Section limit compares it with the matrix products that it consists of, section peers with
    other frameworks, and section growth measures it for growing models, batches and clients.
    """
    if only is not None and only not in SECTIONS:
        raise UserError(f"--only {only}: {nearest(only, SECTIONS)}")
    with starting_up():
        from fedssca.studies.bench.report import print_found, save

    console = progress_console(quiet, as_json)
    try:
        with on_signal(signal.SIGTERM, _stop), ProgressLine(console, "the measurement") as line:
            sections = (only,) if only else SECTIONS
            found = measure_all(sections, venvs, quick, line.preparing, line.warn)
    except KeyboardInterrupt:
        print("stopped: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    written = save(found, out)
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        print_found(found)
        console.print(f"saved in {out}: {', '.join(p.name for p in written)}", highlight=False)


def measure_all(
    sections: tuple[str, ...], venvs: Path | None, quick: bool, tick: Any, warn: Any
) -> dict[str, Any]:
    """Measure the chosen sections one after another; the result is one JSON object."""
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
        warn(f"note: the machine is busy (load {load} on {processors} processors): these are rough")
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
            warn(f"note: {error}")
    if "growth" in sections:
        found |= measure_growth(data, max(2, turns // 3), seconds / 2, home, quick, tick)
    return found


def _stop(*_: object) -> None:
    """End after SIGTERM as after Ctrl-C: child processes are cleaned up."""
    raise KeyboardInterrupt
