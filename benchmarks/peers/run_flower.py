"""Flower: `FedAvg` in its simulation (Ray), one ClientApp a client, numpy arrays as records.

To be kind to it: as many workers as processors, no evaluation, no telemetry, no logs, rows and
code stay in the workers, the server looks for replies every millisecond instead of every 0.1 s.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from pathlib import Path

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import common
import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

given = common.settings()
rows = functools.cache(functools.partial(common.load, given))
draw = functools.cache(lambda client: np.random.default_rng([given.seed, client]))
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    client = int(context.node_config["partition-id"])
    data = rows(client)
    w = message.content["arrays"].to_numpy_ndarrays()
    index = draw(client).integers(given.rows, size=given.batch)
    slopes = common.gradient(w, data.x[index], data.y[index])
    new = ArrayRecord([each - given.rate * g for each, g in zip(w, slopes, strict=True)])
    content = {"arrays": new, "metrics": MetricRecord({"num-examples": given.rows})}
    return Message(content=RecordDict(content), reply_to=message)


class Clocked(FedAvg):
    """FedAvg that marks the end of every round."""

    marks: list[float] = []  # noqa: RUF012

    def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
        """Called by Flower."""
        replies = list(replies)
        if len(replies) != given.clients or any(reply.has_error() for reply in replies):
            raise RuntimeError("a client failed")
        answer = super().aggregate_train(server_round, replies)
        self.marks.append(time.time())
        return answer


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    if hasattr(grid, "pull_interval"):
        grid.pull_interval = 0.001
    data = common.load(given, 0)
    strategy = Clocked(
        fraction_train=1.0,
        fraction_evaluate=0.0,
        min_train_nodes=given.clients,
        min_available_nodes=given.clients,
    )
    first = ArrayRecord(data.w)
    end = strategy.start(grid, first, num_rounds=given.rounds).arrays.to_numpy_ndarrays()
    seconds = list(np.diff(strategy.marks))[given.warmup - 1 :]
    startup = strategy.marks[0] - given.launched
    Path(f"{os.environ[common.PLACE]}.result").write_text(
        json.dumps([seconds, startup, common.loss(given, end)])
    )


def ray_settings() -> dict[str, object]:
    """Ray's own files go with the benchmark's, unless the names of its sockets get too long."""
    folder = Path(os.environ[common.PLACE]).parent / "ray"
    own = {"_temp_dir": str(folder)} if len(str(folder)) < 40 else {}
    return {"num_cpus": given.threads, "log_to_driver": False, **own}


def main() -> None:
    logging.disable(logging.WARNING)
    with common.silent():
        run_simulation(
            server_app,
            client_app,
            num_supernodes=given.clients,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": ray_settings(),
            },
        )
    answer = json.loads(Path(f"{os.environ[common.PLACE]}.result").read_text())
    common.emit(*answer, ["flwr", "ray", "numpy"])


if __name__ == "__main__":
    import run_flower  # so that workers find functions by name instead of receiving them

    run_flower.main()
