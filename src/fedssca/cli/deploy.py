"""`fedssca deploy`: train across machines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedssca.cli.options import (
    Json,
    Quiet,
    Settings,
    new_app,
    progress_console,
    read_config,
    timestamp,
)
from fedssca.cli.progress import ProgressLine, row_numbers
from fedssca.deploy import require_engine
from fedssca.errors import UserError
from fedssca.system import starting_up

if TYPE_CHECKING:
    from fedssca.run.config import Config

__all__ = ["app"]

app = new_app("Train across machines: each site keeps its data and starts one command.")
KitOption = Annotated[Path, typer.Option("--kit", help="The submitter's kit.")]
Wait = Annotated[float, typer.Option(help="Seconds to wait for a site that is away.")]


@app.command(epilog="Example: fedssca deploy init project.toml --server fl.example.org --sites 3")
def init(
    file: Annotated[Path, typer.Argument(help="The project file to write.")] = Path("project.toml"),
    server: Annotated[str, typer.Option(help="The server's host name.")] = "localhost",
    port: Annotated[int, typer.Option(help="The one port that sites reach.")] = 8002,
    sites: Annotated[int, typer.Option(help="How many sites to list.", min=1)] = 2,
) -> None:
    """Write a commented project file: server, port, sites."""
    from fedssca.deploy.project import write_template

    write_template(file, sites, server, port)
    _say(f"{file} written: edit it, then fedssca deploy provision {file}")


@app.command(epilog="Example: fedssca deploy provision project.toml --out kits")
def provision(
    file: Annotated[Path, typer.Argument(help="The project file.")],
    out: Annotated[Path, typer.Option(help="A new folder for the kits.")] = Path("kits"),
) -> None:
    """Make one startup kit per party, with its certificate; the CA's key is kept apart."""
    from fedssca.deploy.project import provision, read_project

    made = provision(read_project(file), out)
    for party, folder in made.items():
        if party != "ca":
            _say(f"{party}: {folder}")
    _say(f"CA key: {made['ca']}; keep it offline, and away from whoever runs the server")


@app.command(epilog="Example: fedssca deploy server kits/server")
def server(kit: Annotated[Path, typer.Argument(help="The server's kit.")]) -> None:
    """Run the server until Ctrl-C."""
    with starting_up():
        from fedssca.deploy.kit import Kit

    own = Kit.of(kit, "server")
    _stand(own, {}, f"server at {own.address}")


@app.command(epilog="Example: fedssca deploy site kits/site-1 --data site.toml")
def site(
    kit: Annotated[Path, typer.Argument(help="This site's kit.")],
    data: Annotated[Path, typer.Option(help="site.toml: where this site's data is.")],
) -> None:
    """Run a site until Ctrl-C; its data stay on this machine."""
    with starting_up():
        from fedssca.deploy.kit import SITE_FILE, Kit
        from fedssca.deploy.sheet import read_sheet, read_source

    own = Kit.of(kit, "site")
    sheet = read_sheet(read_source(data), "")
    what = f"{own.name}: {sheet.rows} rows, {len(sheet.features)} columns, for {own.address}"
    _stand(own, {SITE_FILE: str(data.absolute())}, what)


@app.command(epilog="Example: fedssca deploy submit run.toml --kit kits/submit --out runs/joint")
def submit(
    file: Annotated[Path | None, typer.Argument(help="The run as TOML.")] = None,
    kit: KitOption = Path("kits/submit"),
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default: runs/<time>.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this directory.")] = None,
    wait: Wait = 600.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Submit a run, follow it, and fetch its run directory."""
    require_engine()
    with starting_up():
        from fedssca.deploy.kit import Kit
        from fedssca.deploy.submit import Ticket, open_desk
        from fedssca.run.config import parse

    own = Kit.of(kit, "submit")
    if resume is not None:
        if file or settings or out:
            raise UserError("--resume takes the run as it is: leave out the file, --set and --out")
        ticket, folder = Ticket.read(resume), resume
        config = parse(ticket.config)
    else:
        config = read_config(file, settings)
        folder = out or Path("runs") / f"{timestamp()}-deploy"
        ticket = _new_ticket(own.sites, config, folder)
    with open_desk(own) as desk:
        _see_through(desk, ticket, folder, config, resume is not None, wait, quiet, as_json)


@app.command(epilog="Example: fedssca deploy local run.toml --sites 4 --out runs/try")
def local(
    file: Annotated[Path | None, typer.Argument(help="The run as TOML.")] = None,
    sites: Annotated[int, typer.Option(help="How many sites to start.", min=1)] = 4,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default: runs/<time>.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run server, sites and submitter on this machine, as processes with certificates."""
    require_engine()
    with starting_up():
        from fedssca.deploy.local import field
        from fedssca.deploy.submit import open_desk

    config = read_config(file, settings)
    folder = out or Path("runs") / f"{timestamp()}-deploy"
    with field(config, sites, folder / "logs") as made:
        ticket = _new_ticket(made.sites, config, folder)
        with open_desk(made.kits["submit"]) as desk:
            _see_through(desk, ticket, folder, config, False, 60.0, quiet, as_json)


@app.command(epilog="Example: fedssca deploy predict runs/joint new.csv --out predictions.csv")
def predict(
    run: Annotated[Path, typer.Argument(help="The run directory of a complete deployed run.")],
    file: Annotated[
        Path | None, typer.Argument(help="New rows (CSV, Parquet), where sites hold rows.")
    ] = None,
    kit: KitOption = Path("kits/submit"),
    out: Annotated[Path | None, typer.Option(help="A CSV to write; default: stdout.")] = None,
    wait: Wait = 600.0,
) -> None:
    """Predict the rows of a file, or without a file the new rows that the parties hold together."""
    with starting_up():
        from fedssca.deploy.predict import predict_file, write_predictions

    if file is not None:
        answer = predict_file(run, file)
    else:
        require_engine()
        from fedssca.deploy.kit import Kit
        from fedssca.deploy.submit import Ticket, ask_for, open_desk

        with open_desk(Kit.of(kit, "submit")) as desk:
            answer = ask_for(desk, Ticket.read(run), run, "predict", wait)
    if out is None:
        write_predictions(answer, sys.stdout)
        return
    with open(out, "w", newline="") as stream:
        write_predictions(answer, stream)


@app.command(epilog="Example: fedssca deploy status --kit kits/submit")
def status(kit: KitOption = Path("kits/submit"), as_json: Json = False) -> None:
    """Show which sites are connected and which runs are under way."""
    require_engine()
    with starting_up():
        from fedssca.deploy.kit import Kit
        from fedssca.deploy.submit import Unready, open_desk

    own = Kit.of(kit, "submit")
    runs: list[dict[str, Any]] = []
    with open_desk(own) as desk:
        here = sorted(desk.connected())
        for job in desk.jobs():
            entry = {"job": job.get("job_id"), "status": job.get("status")}
            if entry["status"] == "RUNNING":
                try:
                    said = desk.say(str(entry["job"]), {})
                except Unready:
                    said = {}
                entry |= {name: said[name] for name in ("round", "live") if name in said}
                entry |= {"row": said["rows"][-1]} if said.get("rows") else {}
            runs.append(entry)
    if as_json:
        print(json.dumps({"sites": {s: s in here for s in own.sites}, "runs": runs}))
        return
    for name in own.sites:
        print(f"{name}: {'connected' if name in here else 'away'}")
    for run in runs:
        at = f", round {run['round']}, {len(run['live'])} sites" if "round" in run else ""
        print(f"{run['job']}: {run['status']}{at}")


@app.command(epilog="Example: fedssca deploy logs kits/site-1 --lines 50")
def logs(
    kit: Annotated[Path, typer.Argument(help="The kit of a server or site on this machine.")],
    lines: Annotated[int, typer.Option(help="How many lines from the end.", min=1)] = 30,
) -> None:
    """Print the last lines of the log of a kit's process."""
    from fedssca.deploy.kit import Kit

    own = Kit(kit)
    if not own.log.is_file():
        raise UserError(f"{own.log} is not there: nothing was started from this kit yet")
    print("\n".join(own.log.read_text(errors="replace").splitlines()[-lines:]))


@app.command(epilog="Example: fedssca deploy stop --kit kits/submit")
def stop(
    job: Annotated[str | None, typer.Argument(help="One job; none: all that run.")] = None,
    kit: KitOption = Path("kits/submit"),
) -> None:
    """Stop runs; `deploy submit --resume` continues one later. Sites stay connected."""
    require_engine()
    with starting_up():
        from fedssca.deploy.kit import Kit
        from fedssca.deploy.submit import open_desk

    with open_desk(Kit.of(kit, "submit")) as desk:
        found = [str(j["job_id"]) for j in desk.jobs() if j.get("status") == "RUNNING"]
        if job and job not in found:
            raise UserError(f"no job {job} runs; running: {', '.join(found) or 'none'}")
        for each in [job] if job else found:
            desk.stop(each)
            _say(f"{each} stopped")
        if not found:
            _say("nothing runs")


def _new_ticket(sites: list[str], config: Config, folder: Path) -> Any:
    from fedssca.deploy.submit import Ticket
    from fedssca.run.config import render
    from fedssca.run.record import RunDirectory

    RunDirectory.check_free(folder)
    config = replace(config, data=replace(config.data, clients=len(sites)))
    ticket = Ticket.new(sites, render(config))
    ticket.write(folder)
    return ticket


def _see_through(
    desk: Any,
    ticket: Any,
    folder: Path,
    config: Config,
    resume: bool,
    wait: float,
    quiet: bool,
    as_json: bool,
) -> None:
    """Follow a run to its end; Ctrl-C leaves a run that can be resumed."""
    from fedssca.cli.results import draw_run_curves, print_results
    from fedssca.deploy.submit import Follower, follow

    console = progress_console(quiet, as_json)
    try:
        with ProgressLine(console, folder.name, config.algorithm.rounds - 1) as line:

            def show(row: dict[str, Any], live: Sequence[str]) -> None:
                sites = f"{len(live)}/{len(ticket.sites)} sites"
                line.update(row["round"], row_numbers(row, sites))

            result = follow(desk, ticket, folder, resume, Follower(show, line.warn), wait)
    except KeyboardInterrupt:
        print(f"stopped; continue: fedssca deploy submit --resume {folder}", file=sys.stderr)
        raise typer.Exit(130) from None
    draw_run_curves({folder: config})
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        print_results({folder: result})


def _stand(kit: Any, environment: dict[str, str], what: str) -> None:
    """Run the process of a party; it ends with this command."""
    from fedssca.deploy.kit import running

    process = kit.start(environment)
    with running({kit.name: process}):
        _say(f"{what}; log: {kit.log}; Ctrl-C ends it")
        try:
            while process.poll() is None:
                time.sleep(0.2)
        except KeyboardInterrupt:
            return
    raise UserError(f"the process ended with code {process.returncode}: see {kit.log}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
