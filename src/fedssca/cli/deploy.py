"""`fedssca deploy`: train across machines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedssca.cli.options import (
    Json,
    More,
    Quiet,
    Settings,
    check_more,
    new_app,
    progress_console,
    read_config,
    timestamp,
)
from fedssca.cli.predict import Out, give
from fedssca.errors import UserError
from fedssca.run.progress import ProgressLine
from fedssca.run.schema import ProjectFile
from fedssca.run.schema.validate import default_of
from fedssca.system import starting_up

if TYPE_CHECKING:
    from fedssca.deploy.engine import Engine, Kit, Session
    from fedssca.deploy.submit import SubmittedRun
    from fedssca.run.config import Config

__all__ = ["app"]

app = new_app("Train across machines: each site keeps its data and starts one command.")
KitOption = Annotated[Path, typer.Option("--kit", help="The submitter's kit.")]
EngineOption = Annotated[str, typer.Option("--engine", help="What runs it: nvflare or flower.")]
Wait = Annotated[float, typer.Option(help="Seconds to wait for a site that is away.")]


@app.command(epilog="Example: fedssca deploy init --engine flower --run run.toml --sites 3")
def init(
    file: Annotated[
        Path | None,
        typer.Argument(help="The project file, or the folder of the app, to write."),
    ] = None,
    server: Annotated[str, typer.Option(help="The server's host name.")] = default_of(
        ProjectFile, "server"
    ),
    port: Annotated[int, typer.Option(help="The one port that sites reach.")] = default_of(
        ProjectFile, "port"
    ),
    sites: Annotated[int, typer.Option(help="The number of sites to list.", min=1)] = 2,
    engine: Annotated[
        str | None, typer.Option("--engine", help="flower: also write an app for flwr run.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The run of the app as TOML; default: the embedded one.")
    ] = None,
) -> None:
    """Write a commented project file: server, port, sites; for Flower an app with it."""
    from fedssca.deploy.project import new_project, write_app, write_template

    project = new_project(sites, server, port)
    folder = file or Path("fedssca-app")
    if engine and (files := _app_files(engine, project, run, folder)):
        write_app(folder, project, files)
        _say(f"{folder} written: README.md there says how flwr run starts it")
        return
    if run is not None:
        raise UserError("--run is part of an app: add --engine flower")
    file = file or Path("project.toml")
    write_template(file, project)
    _say(f"{file} written: edit it, then fedssca deploy provision {file}")


@app.command(epilog="Example: fedssca deploy provision project.toml --out kits")
def provision(
    file: Annotated[Path, typer.Argument(help="The project file.")],
    out: Annotated[Path, typer.Option(help="A new folder for the kits.")] = Path("kits"),
    engine: EngineOption = "nvflare",
) -> None:
    """Make one startup kit per party, with its certificate; the CA's key is kept apart."""
    from fedssca.deploy.project import read_project

    made = _engine(engine).provision(read_project(file), out)
    for party, folder in made.items():
        if party != "ca":
            _say(f"{party}: {folder}")
    _say(f"CA key: {made['ca']}; keep it offline, and away from whoever runs the server")


@app.command(epilog="Example: fedssca deploy server kits/server")
def server(kit: Annotated[Path, typer.Argument(help="The server's kit.")]) -> None:
    """Run the server until Ctrl-C."""
    own = _engine_of(kit).open_kit(kit, "server")
    _run_kit(own, None, f"server at {own.address}")


@app.command(epilog="Example: fedssca deploy site kits/site-1 --data site.toml")
def site(
    kit: Annotated[Path, typer.Argument(help="The kit of this site.")],
    data: Annotated[Path, typer.Option(help="site.toml: where this site's data is.")],
) -> None:
    """Run a site until Ctrl-C; its data stay on this machine."""
    with starting_up():
        from fedssca.deploy.site.raw_table import read_raw_table, read_source

    own = _engine_of(kit).open_kit(kit, "site")
    table = read_raw_table(read_source(data), "")
    what = f"{own.name}: {table.rows} rows, {len(table.features)} columns, for {own.address}"
    _run_kit(own, data, what)


@app.command(epilog="Example: fedssca deploy check site.toml run.toml")
def check(
    data: Annotated[Path, typer.Argument(help="site.toml: where this site's data is.")],
    file: Annotated[Path | None, typer.Argument(help="The run as TOML.")] = None,
    settings: Settings = None,
    sites: Annotated[
        int | None, typer.Option(help="The number of sites; default: data.clients.", min=1)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what would leave a site in a run, with values, and which of its limits refuse what."""
    with starting_up():
        from fedssca.deploy.check import check_site

    found = check_site(data, read_config(file, settings), sites)
    if as_json:
        print(json.dumps(found))
        return
    from fedssca.cli.exposure import print_exposure

    print_exposure(found)


@app.command(epilog="Example: fedssca deploy submit run.toml --kit kits/submit --out runs/joint")
def submit(
    file: Annotated[Path | None, typer.Argument(help="The run as TOML.")] = None,
    kit: KitOption = Path("kits/submit"),
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The run directory; default: runs/<time>-deploy.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this directory.")] = None,
    more: More = None,
    wait: Wait = 600.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Submit a run, follow it, and fetch its run directory."""
    engine = _engine_of(kit)
    with starting_up():
        from fedssca.deploy.submit import SubmittedRun
        from fedssca.run.config import parse
        from fedssca.run.more import longer
        from fedssca.run.record import RunDirectory

    check_more(more, resume)
    own, setting = engine.open_kit(kit, "submit"), ""
    if resume is not None:
        if file or settings or out:
            raise UserError("--resume takes the run as it is: leave out the file, --set and --out")
        run, folder = SubmittedRun.read(resume), resume
        config = parse(run.config)
        if more is not None:
            copied = RunDirectory.open(resume)
            setting = longer(copied, more)
            config = parse(copied.config, [setting])
    else:
        config = read_config(file, settings)
        folder = out or Path("runs") / f"{timestamp()}-deploy"
        run = _new_run(own.sites, config, folder)
    with engine.open_session(own) as session:
        _follow(session, run, folder, config, resume is not None, wait, quiet, as_json, setting)


@app.command(epilog="Example: fedssca deploy local run.toml --sites 4 --out runs/try")
def local(
    file: Annotated[Path | None, typer.Argument(help="The run as TOML.")] = None,
    sites: Annotated[int, typer.Option(help="The number of sites to start.", min=1)] = 4,
    engine: EngineOption = "nvflare",
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The run directory; default: runs/<time>-deploy.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run server, sites and submitter on this machine, as processes with certificates."""
    runs_on = _engine(engine)
    with starting_up():
        from fedssca.deploy.local import local_deployment

    config = read_config(file, settings)
    folder = out or Path("runs") / f"{timestamp()}-deploy"
    with local_deployment(runs_on, config, sites, folder / "logs") as made:
        run = _new_run(made.sites, config, folder)
        with runs_on.open_session(made.kits["submit"]) as session:
            _follow(session, run, folder, config, False, 60.0, quiet, as_json)


@app.command(epilog="Example: fedssca deploy predict runs/joint new.csv --out predictions.csv")
def predict(
    run: Annotated[Path, typer.Argument(help="The run directory of a complete deployed run.")],
    file: Annotated[
        Path | None, typer.Argument(help="New rows (CSV or Parquet); only if the sites hold rows.")
    ] = None,
    kit: KitOption = Path("kits/submit"),
    out: Out = None,
    wait: Wait = 600.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Predict the rows of a file, or without a file the new rows that the parties hold together."""
    with starting_up():
        from fedssca.run.model import joint_predictions, load_model, predict_rows

    model = load_model(run)
    if file is not None:
        give(predict_rows(model, file, str(file)), out, quiet, as_json)
        return
    from fedssca.deploy.submit import SubmittedRun, ask_for

    engine = _engine_of(kit)
    with engine.open_session(engine.open_kit(kit, "submit")) as session:
        answer = ask_for(session, SubmittedRun.read(run), run, "predict", wait)
    give(joint_predictions(model, answer), out, quiet, as_json)


@app.command(epilog="Example: fedssca deploy status --kit kits/submit")
def status(kit: KitOption = Path("kits/submit"), as_json: Json = False) -> None:
    """Show which sites are connected and which runs are under way."""
    from fedssca.deploy.engine import JobNotReady

    engine = _engine_of(kit)
    own = engine.open_kit(kit, "submit")
    runs: list[dict[str, Any]] = []
    with engine.open_session(own) as session:
        here = sorted(session.connected())
        for job in session.jobs():
            entry = {"job": job.get("job_id"), "status": job.get("status")}
            if entry["status"] == "RUNNING":
                try:
                    said = session.command(str(entry["job"]), {})
                except JobNotReady:
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
    lines: Annotated[int, typer.Option(help="The number of lines from the end.", min=1)] = 30,
) -> None:
    """Print the last lines of the log of a kit's process."""
    own = _engine_of(kit).open_kit(kit)
    if not own.log.is_file():
        raise UserError(f"{own.log} is not there: nothing was started from this kit yet")
    print("\n".join(own.log.read_text(errors="replace").splitlines()[-lines:]))


@app.command(epilog="Example: fedssca deploy stop --kit kits/submit")
def stop(
    job: Annotated[
        str | None, typer.Argument(help="The id of one job; default: all running jobs.")
    ] = None,
    kit: KitOption = Path("kits/submit"),
) -> None:
    """Stop runs; `deploy submit --resume` continues one later. Sites stay connected."""
    engine = _engine_of(kit)
    with starting_up():
        from fedssca.deploy.submit import stop as stop_job

    with engine.open_session(engine.open_kit(kit, "submit")) as session:
        found = [str(j["job_id"]) for j in session.jobs() if j.get("status") == "RUNNING"]
        if job and job not in found:
            raise UserError(f"no job {job} runs; running: {', '.join(found) or 'none'}")
        for each in [job] if job else found:
            stop_job(session, each)
            _say(f"{each} stopped")
        if not found:
            _say("nothing runs")


def _app_files(
    engine: str, project: ProjectFile, run: Path | None, folder: Path
) -> Mapping[str, str]:
    """The files of an engine's app for a run, whose data are named by absolute paths."""
    from fedssca.run.config import absolute, embedded_default, read, render

    config = read_config(run, None)
    text = read(run) if run else embedded_default()
    if absolute(config) != config:
        text = render(absolute(config))
    return _engine(engine).app_files(project, text, str((folder / "runs").absolute()))


def _engine(name: str) -> Engine:
    """The engine of this name; a UserError says what to install if it is missing."""
    with starting_up():
        from fedssca.deploy.engines import chosen_engine

    return chosen_engine(name)


def _engine_of(kit: Path) -> Engine:
    """The engine that a kit was made for."""
    with starting_up():
        from fedssca.deploy.engines import engine_of

    return engine_of(kit)


def _new_run(sites: list[str], config: Config, folder: Path) -> SubmittedRun:
    from fedssca.deploy.submit import SubmittedRun
    from fedssca.run.config import render
    from fedssca.run.record import RunDirectory

    RunDirectory.check_free(folder)
    config = replace(config, data=replace(config.data, clients=len(sites)))
    run = SubmittedRun.new(sites, render(config))
    run.write(folder)
    return run


def _follow(
    session: Session,
    run: SubmittedRun,
    folder: Path,
    config: Config,
    resume: bool,
    wait: float,
    quiet: bool,
    as_json: bool,
    longer: str = "",
) -> None:
    """Follow a run to its end; Ctrl-C leaves a run that can be resumed."""
    from fedssca.cli.results import draw_run_curves, print_results
    from fedssca.deploy.submit import Follower, follow
    from fedssca.run.execute import load_config

    console = progress_console(quiet, as_json)
    try:
        with ProgressLine(console, folder.name, config.algorithm.most_rounds) as line:

            def show(row: dict[str, Any], live: Sequence[str]) -> None:
                sites = f"{len(live)}/{len(run.sites)} sites"
                line.show_row(row, sites)

            tell = Follower(show, line.warn)
            result = follow(session, run, folder, resume, tell, wait, longer)
    except KeyboardInterrupt:
        # The copy of config.toml has the larger number of rounds once the server goes on with it.
        begun = not longer or load_config(folder) == config
        again = "" if begun else " with the same --more"
        print(f"stopped; continue{again}: fedssca deploy submit --resume {folder}", file=sys.stderr)
        raise typer.Exit(130) from None
    draw_run_curves({folder: config})
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        print_results({folder: result})


def _run_kit(kit: Kit, data: Path | None, what: str) -> None:
    """Run the process of a party; it ends with this command."""
    from fedssca.deploy.processes import ending

    process = kit.start(data)
    with ending({kit.name: process}):
        _say(f"{what}; log: {kit.log}; Ctrl-C ends it")
        try:
            while process.poll() is None:
                time.sleep(0.2)
        except KeyboardInterrupt:
            return
    raise UserError(f"the process ended with code {process.returncode}: see {kit.log}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
