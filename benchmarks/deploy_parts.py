"""What a benchmark job names at server and sites; `benchmarks/deploy.py` puts it on the path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvflare.collab import collab
from turns import Spy, in_turn

from fedssca.deploy.engines.nvflare.job import JobServer, JobSite
from fedssca.deploy.engines.nvflare.link import collab_call
from fedssca.deploy.server.job import ServerJob
from fedssca.deploy.server.run import RunOrder
from fedssca.run.config import parse


class EchoSite(JobSite):
    """A site that also sends plain bytes around, as bare as the engine does it."""

    @collab.publish
    def echo(self, data: bytes, size: int) -> bytes:
        return bytes(size)

    @collab.publish
    def exchange(self, data: bytes, size: int, peers: list) -> bool:
        waiting = collab.get_clients(peers)(secure=True, timeout=60.0).take(bytes(size))
        return len(list(waiting)) == len(peers)

    @collab.publish
    def take(self, data: bytes) -> bool:
        return True


class Bench(JobServer):
    """The server's object of a benchmark job."""

    def __init__(self, **order: Any) -> None:
        super().__init__(**order)
        self._job = BenchJob(self._job.order)


class BenchJob(ServerJob):
    """Rounds of a run and bare rounds of the same bytes, one after the other."""

    def carry_out(self, link: Any, connected: Any, folder: Path) -> dict[str, Any]:
        spy, order = Spy(collab_call), self.order
        run = RunOrder(parse(order.config), order.sites, bytes.fromhex(order.run))

        def bare(job: Any, census: Any) -> None:
            self._columns(spy, job) if census.columns else self._rows(spy)

        in_turn(run, spy, folder, bare)
        return {"state": "done"}

    def _rows(self, spy: Spy) -> None:
        """As many exchanges as a round has, two with a secure sum, of the same bytes."""
        for down, up in spy.exchanges():
            got = collab.clients(timeout=60.0).echo(bytes(down), up)
            assert all(len(data) == up for _, data in got)

    def _columns(self, spy: Spy, job: Any) -> None:
        """The same calls, the same bytes: own block down, h to all peers, own block up."""
        h = 4 * job.algorithm.batch * job.config.model.hidden + 100
        first, last = spy.sizes["train/share"], spy.sizes["train/reply"]
        ask = {s: collab.get_clients([s])(blocking=False, timeout=60.0) for s in first}
        waiting = [
            ask[site].exchange(bytes(down), h, [peer for peer in first if peer != site])
            for site, (down, _) in first.items()
        ]
        assert all(done for results in waiting for _, done in results)
        ask = {s: collab.get_clients([s])(blocking=False, timeout=60.0) for s in first}
        waiting = [ask[site].echo(bytes(down), up) for site, (down, up) in last.items()]
        assert all(data is not None for results in waiting for _, data in results)
