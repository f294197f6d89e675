"""The ServerApp of a submitted job: it runs installed code, and reads its order from the kit.

The SuperLink of a kit (`superlink`) makes the app bundle itself. So the submitter chooses the
numbers of a run, not what the server executes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedssca.deploy.engine import JobOrder
from fedssca.deploy.engines.flower.channel import as_json, serve
from fedssca.deploy.engines.flower.link import GridCalls, grid_link, look_often
from fedssca.deploy.server.job import ServerJob
from fedssca.system import end_with_parent

__all__ = ["JOBS", "app", "carry_out"]

JOBS = Path("jobs")
"""Where a job's order, its process id and its socket are, below the folder of the server's kit."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the order of this job; its outcome waits for the submitting side."""
    end_with_parent()
    place = JOBS / str(context.run_id)
    place.with_suffix(".pid").write_text(str(os.getpid()))
    job = ServerJob(JobOrder(**json.loads(place.with_suffix(".json").read_text())))
    serve(place.with_suffix(".sock"), as_json(job.command))
    nodes = {node.name: node.node_id for node in grid.get_nodes()}
    carry_out(job, grid, nodes, Path("runs"))


def carry_out(job: ServerJob, grid: Grid, nodes: Mapping[str, int], runs: Path) -> None:
    """Run a job over the nodes of a grid, and tell them when it is over."""
    look_often()
    calls = GridCalls(grid, nodes)
    job.run(grid_link(calls), set(nodes), runs)
    calls.ask_all(list(nodes.values()), {"kind": "bye"}, 2.0)
