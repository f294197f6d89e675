"""Seconds per round on Flower, beside bare Flower that moves the same bytes.

Four sites, rows, B = 10, d = 101,632 (784-128-10). Ten rounds of the run and ten bare rounds take
turns within one job, so both see the same machine; means are shown.

    deployment   SuperLink, ServerApp and SuperNodes of `fedssca deploy --engine flower`, with TLS
    simulation   Flower's simulation on Ray (needs the extra flower-simulation)

A bare round is a message down and a message up at every node with as many bytes, sent and looked
for as often as those of the run; nothing is computed. In the simulation it is answered by Flower's
worker itself, and Flower looks for messages every 0.1 s.

`python benchmarks/flower_ratio.py deployment` measures one of the two.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from cells import markdown
from turns import RUN, table_row, write_images

from fedssca.deploy.engines import flower
from fedssca.deploy.engines.flower import kit
from fedssca.deploy.local import local_deployment
from fedssca.deploy.submit import Follower, SubmittedRun, follow
from fedssca.run.config import Config, parse, render

PLACES = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
HERE = {"PYTHONPATH": os.pathsep.join(PLACES)}
"""Where the processes of both find the modules of this folder."""
SITES = 4
TITLES = {"deployment": "SuperLink and SuperNodes", "simulation": "Flower's simulation, on Ray"}


def deployment(config: Config, out: Path) -> None:
    vars(kit)["__package__"] = "flower_parts"
    with (
        local_deployment(flower, config, SITES, out / "logs", HERE) as made,
        flower.open_session(made.kits["submit"]) as session,
    ):
        run = SubmittedRun.new(made.sites, render(config))
        run.write(out)
        follow(session, run, out, False, Follower(lambda row, live: None, print), 300.0)


def simulation(config: Config, out: Path) -> None:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", **HERE, **kit.SETTINGS}
    import flower_parts
    from flwr.simulation import run_simulation

    file = out.with_suffix(".toml")
    file.write_text(render(config))
    os.environ |= {flower_parts.RUN: str(file), flower_parts.OUT: str(out)}
    run_simulation(
        flower_parts.server,
        flower_parts.client,
        num_supernodes=SITES,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": len(os.sched_getaffinity(0)), "log_to_driver": False},
        },
    )


def main(kinds: list[str]) -> None:
    ways: dict[str, Any] = {"deployment": deployment, "simulation": simulation}
    table = []
    with tempfile.TemporaryDirectory() as scratch:
        images = Path(scratch) / "images.npz"
        write_images(images)
        for kind in kinds or list(ways):
            config = parse(RUN.format(path=images, split="sample", batch=10))
            ways[kind](config, Path(scratch) / kind)
            found = json.loads((Path(scratch) / kind / "result.json").read_text())
            table.append(table_row(TITLES[kind], found))
    print(markdown(table))


if __name__ == "__main__":
    main(sys.argv[1:])
