"""The server's object of an NVFlare job in which rounds of a run and bare rounds take turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedssca.deploy.engines.nvflare.echo import echo_all, exchange_all
from fedssca.deploy.engines.nvflare.job import JobServer
from fedssca.deploy.engines.nvflare.link import collab_call
from fedssca.deploy.server.job import ServerJob
from fedssca.deploy.server.run import RunOrder
from fedssca.run.config import parse
from fedssca.studies.bench.turns import Spy, in_turn

__all__ = ["BenchJob", "BenchServer"]


class BenchServer(JobServer):
    """The server's object; the sites have an `EchoSite`."""

    def __init__(self, **order: Any) -> None:
        super().__init__(**order)
        self._job = BenchJob(self._job.order)


class BenchJob(ServerJob):
    """Rounds of a run and bare rounds of the same bytes, one after the other."""

    def carry_out(self, link: Any, connected: Any, folder: Path) -> dict[str, Any]:
        """Measure, and write the means into the result of the job."""
        del link, connected
        spy, order = Spy(collab_call), self.order
        run = RunOrder(parse(order.config), order.sites, bytes.fromhex(order.run))

        def bare(job: Any, census: Any) -> None:
            if census.columns:
                h = 4 * job.algorithm.batch * job.config.model.hidden + 100
                exchange_all(spy.sizes["train/share"], h, spy.sizes["train/reply"])
                return
            for down, up in spy.exchanges():  # two with a secure sum
                echo_all(down, up)

        in_turn(run, spy, folder, bare)
        return {"state": "done"}
