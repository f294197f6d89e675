"""`fedssca bench`: time measurements as tables, CSV, PNG and JSON."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedssca.cli.options import Json, Quiet, new_app, progress_console, separated
from fedssca.errors import UserError, nearest
from fedssca.run.progress import ProgressLine
from fedssca.system import on_signal, starting_up

__all__ = ["app"]

app = new_app()


@app.command(epilog="Example: fedssca bench --only limit --json")
def bench(
    only: Annotated[
        str | None,
        typer.Option(
            help="Measure one section only: limit, methods, noise, deep, start, bytes, sums, psi, "
            "sites, peers or growth."
        ),
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
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names for the section methods, separated by commas; also methods of yours, "
            "package.module:function."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure briefly and roughly.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure the time of a round.

    Section limit compares it with the matrix products that it consists of, methods compares
    methods, noise rounds with and without noise, deep rounds of deeper networks with PyTorch, start
    the time to the first row of a run with that of importing JAX, bytes what methods send to reach
    an accuracy, peers other frameworks, and growth measures it for growing models, batches and
    clients. Section sums measures secure sums, psi the alignment of ids, and
    sites the memory and the rounds of a deployment on this machine.
    """
    with starting_up():
        from fedssca.studies.bench.measure import SECTIONS, measure_all
        from fedssca.studies.bench.methods import METHODS
        from fedssca.studies.bench.report import print_found, save

    if only is not None and only not in SECTIONS:
        raise UserError(f"--only {only}: {nearest(only, SECTIONS)}")
    names = METHODS if methods is None else separated(methods)
    if not names:
        raise UserError(f"--methods is empty: name some, such as {','.join(METHODS)}")
    console = progress_console(quiet, as_json)
    try:
        with on_signal(signal.SIGTERM, _stop), ProgressLine(console, "the measurement") as line:
            sections = (only,) if only else SECTIONS
            found = measure_all(sections, venvs, quick, line.preparing, line.warn, names)
    except KeyboardInterrupt:
        print("stopped: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    written = save(found, out)
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        print_found(found)
        console.print(f"saved in {out}: {', '.join(p.name for p in written)}", highlight=False)


def _stop(*_: object) -> None:
    """End after SIGTERM as after Ctrl-C: child processes are cleaned up."""
    raise KeyboardInterrupt
