"""The ServerApp of the app that `fedssca deploy init --engine flower` writes.

It runs the same server as the other deployments.
"""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Mapping
from logging import ERROR, INFO
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from fedssca.deploy.engines.flower.app.template import PROJECT_FILE, RUN_FILE
from fedssca.deploy.engines.flower.link import GridCalls, grid_link, look_often
from fedssca.deploy.engines.flower.records import text
from fedssca.deploy.project import read_project, site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.server.sites import SitesMissing
from fedssca.errors import UserError
from fedssca.run.config import absolute, parse, render
from fedssca.run.record import RunDirectory

__all__ = ["new_server_app", "site_nodes"]

FAREWELL = 15.0
"""The seconds in which nodes may say that they know that the run is over; no result needs it."""

PAUSE = 0.5
"""The seconds between two looks for nodes."""


def new_server_app(folder: Path) -> ServerApp:
    """The ServerApp of the app in `folder`: it carries out the run of its run.toml.

    Its settings are those of [tool.flwr.app.config] in pyproject.toml: `set` are settings as of
    `fedssca run --set`, `out` is the folder for run directories, `resume` the name of one that is
    continued, and `wait` the seconds until all sites must be there.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            _carry_out(grid, context.run_config, folder)
        except UserError as error:
            log(ERROR, "fedssca: %s", error)
            raise error.with_traceback(None) from None  # Flower prints what it is told

    return app


def _carry_out(grid: Grid, settings: Mapping[str, Any], folder: Path) -> None:
    run, resume = str(settings["resume"]), bool(settings["resume"])
    out = Path(str(settings["out"])).absolute() / (run or secrets.token_hex(16))
    if not re.fullmatch("[0-9a-f]{32}", out.name):
        raise UserError(f"resume = {run!r}: give the name of a run directory in {settings['out']}")
    if resume:
        config = parse(RunDirectory.open(out).config)
    else:
        given = shlex.split(str(settings["set"]))
        config = absolute(parse((folder / RUN_FILE).read_text(), given, RUN_FILE))
    listed = read_project(folder / PROJECT_FILE).sites
    nodes = site_nodes(grid, listed, render(config), float(settings["wait"]))
    log(INFO, "%s sites: %s; run directory: %s", len(nodes), ", ".join(nodes), out)
    look_often()
    calls = GridCalls(grid, nodes)
    server = RunServer(
        RunOrder(config, list(nodes), bytes.fromhex(out.name), resume), grid_link(calls), out
    )
    try:
        result = server.run(_show)
    except SitesMissing as missing:
        begun = (out / "config.toml").exists()
        again = f"; continue with --run-config 'resume=\"{out.name}\"'" if begun else ""
        raise SitesMissing(missing.sites, f"{missing}{again}") from None
    finally:
        calls.ask_all(list(nodes.values()), {"kind": "bye"}, FAREWELL)
    log(INFO, "the run is complete: %s", _line(result))


def site_nodes(grid: Grid, listed: list[str], config: str, wait: float) -> dict[str, int]:
    """The node of each site in the order of the sites, once all sites are there.

    Nodes of a simulation share the data of the config out and say how many they are; those of a
    deployment are `listed`, and have their own data.
    """
    calls, found = GridCalls(grid, {}), dict[str, int]()
    hello = {"kind": "hello", "config": config}
    until, wanted = time.monotonic() + wait, listed
    while True:
        new = [node for node in grid.get_node_ids() if node not in found.values()]
        left = max(1.0, until - time.monotonic())
        for node, said in calls.ask_all(new, hello, left).items():
            if name := text(said, "site"):
                found[name] = node
            elif said.get("kind") == "error":
                raise UserError(text(said, "error"))
            if isinstance(count := said.get("simulated"), int):
                wanted = site_names(count)
        if missing := [name for name in wanted if name not in found]:
            if time.monotonic() > until:
                raise UserError(f"{', '.join(missing)} not connected: start a SuperNode there")
            time.sleep(PAUSE)
            continue
        return {name: found[name] for name in wanted}


def _show(row: dict[str, Any]) -> None:
    log(INFO, "%s", _line(row))


def _line(row: Mapping[str, Any]) -> str:
    """The numbers of a row of metrics for Flower's log."""
    told = {key: value for key, value in row.items() if isinstance(value, bool | int | float)}
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in told.items()
    )
