"""What the processes of `benchmarks/flower_ratio.py` run: sites and apps that also send bare bytes.

`python -m flower_parts KIT` takes the place of the package's own process of a kit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedssca.deploy.engines.flower import job
from fedssca.deploy.engines.flower.app import client_app
from fedssca.deploy.engines.flower.app import server as app_server
from fedssca.deploy.engines.flower.kit import FlowerKit
from fedssca.deploy.engines.flower.link import GridCall, GridCalls, look_often
from fedssca.deploy.engines.flower.parties import SiteRuns
from fedssca.deploy.engines.flower.records import Record, content, read
from fedssca.deploy.server.job import ServerJob
from fedssca.deploy.server.run import RunOrder
from fedssca.run.config import parse
from fedssca.studies.bench import turns
from fedssca.system import end_with_parent

RUN, OUT = "FLOWER_RATIO_RUN", "FLOWER_RATIO_OUT"
"""The environment variables of the simulation: the file of the run, and the run directory."""


class GridSpy(turns.Spy):
    """A link over the messages of a grid."""

    def __init__(self, calls: GridCalls) -> None:
        super().__init__(lambda site, data, seconds: GridCall(calls, site, data, seconds))
        self._calls = calls

    def bare(self, *_: Any) -> None:
        """As many exchanges as a round has, of the same bytes, with nothing done at the sites."""
        nodes = list(self._calls.nodes.values())
        for down, up in self.exchanges():
            asked = {"kind": "echo", "data": bytes(down), "size": up}
            got = self._calls.ask_all(nodes, asked, 60.0)
            assert all(len(got[node]["data"]) == up for node in nodes)


def echo(record: Record) -> Record:
    return {"kind": "echo", "data": bytes(int(record["size"]))}


class BenchJob(ServerJob):
    """The job of the deployed benchmark."""

    def carry_out(self, link: Any, connected: Any, folder: Path) -> dict[str, Any]:
        order = self.order
        run = RunOrder(parse(order.config), order.sites, bytes.fromhex(order.run))
        turns.in_turn(run, link, folder, link.bare)
        return {"state": "done"}


# The ServerApp of a deployed job, whose process imports this module.
vars(job).update(ServerJob=BenchJob, grid_link=GridSpy)
app = job.app

# The apps of the simulation.
server, client, sites = ServerApp(), ClientApp(), client_app()


@server.main()
def serve(grid: Grid, context: Context) -> None:
    config, out = Path(os.environ[RUN]).read_text(), Path(os.environ[OUT])
    nodes = app_server.site_nodes(grid, [], config, 60.0)
    look_often()
    calls = GridCalls(grid, nodes)
    run = RunOrder(parse(config), list(nodes), os.urandom(16))
    spy = GridSpy(calls)
    turns.in_turn(run, spy, out, spy.bare)
    calls.ask_all(list(nodes.values()), {"kind": "bye"}, 60.0)


@client.query()
def query(message: Message, context: Context) -> Message:
    record = read(message)
    if record.get("kind") == "echo":
        return Message(content(echo(record)), reply_to=message)
    return sites(message, context)


def main(kit: FlowerKit) -> None:
    """Run the process of a kit."""
    end_with_parent()
    if kit.kind == "server":
        from fedssca.deploy.engines.flower import desk, superlink

        desk.APP["tool"]["flwr"]["app"]["components"]["serverapp"] = "flower_parts:app"
        superlink.run_server(kit)
        return
    from fedssca.deploy.engines.flower.node import run_node

    reply = SiteRuns.reply

    def answer(self: SiteRuns, run: int, record: Record) -> Record:
        return echo(record) if record.get("kind") == "echo" else reply(self, run, record)

    SiteRuns.reply = answer  # type: ignore[method-assign]
    run_node(kit)


if __name__ == "__main__":
    main(FlowerKit(Path(sys.argv[1])))
