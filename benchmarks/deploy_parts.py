"""What a benchmark job names at server and sites; `benchmarks/deploy.py` puts it on the path."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from fedssca.deploy.engines.calls import CallLink
from fedssca.deploy.engines.nvflare.job import JobServer, JobSite
from fedssca.deploy.engines.nvflare.link import collab_call
from fedssca.deploy.server.job import ServerJob
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.rounds.codec import decode
from fedssca.run.config import parse
from fedssca.run.privacy import server_half

ROUNDS, WARM = 60, 10
EXCHANGES = {"train/reply", "sum/unmask"}
"""The exchanges of a round with rows; those of keys are left out, which come once."""


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


class Spy(CallLink):
    """Remembers the sizes of the envelopes of the last call."""

    def __init__(self) -> None:
        super().__init__(collab_call)
        self.sizes: dict[str, dict[str, tuple[int, int]]] = {}

    def ask(self, envelopes: Any, timeout: float, patience: Any = None) -> Any:
        answers = super().ask(envelopes, timeout, patience)
        kind = decode(next(iter(envelopes.values()))).kind
        given = {s: answers[s].data for s in envelopes}  # a late site has given nothing
        self.sizes[kind] = {s: (len(envelopes[s]), len(d)) for s, d in given.items() if d}
        return answers


class Bench(JobServer):
    """The server's object of a benchmark job."""

    def __init__(self, **order: Any) -> None:
        super().__init__(**order)
        self._job = BenchJob(self._job.order)


class BenchJob(ServerJob):
    """Rounds of a run and bare rounds of the same bytes, one after the other."""

    def carry_out(self, link: Any, connected: Any, folder: Path) -> dict[str, Any]:
        spy, order = Spy(), self.order
        run = RunOrder(parse(order.config), order.sites, bytes.fromhex(order.run))
        server = RunServer(run, spy, folder)
        census = server._preparation.census()
        job = server._preparation.prepare(server._config, census)
        adder = server_half(job.config, run.run, len(order.sites))
        rounds = server._rounds("train", job, job.algorithm, adder)
        state = job.algorithm.init(job.problem.start)
        ours, bare = [], []
        for _ in range(min(ROUNDS, job.config.algorithm.most_rounds - 1)):
            begun = time.perf_counter()
            state = rounds.advance(state, int(state.round) + 1)
            ours.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            self._columns(spy, job) if census.columns else self._rows(spy)
            bare.append(time.perf_counter() - begun)
        found = {
            "dimension": job.problem.dimension,
            "ours": statistics.median(ours[WARM:]),
            "bare": statistics.median(bare[WARM:]),
            "bytes": spy.sizes,
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").write_text(json.dumps(found))
        (folder / "config.toml").write_text(order.config)
        return {"state": "done"}

    def _rows(self, spy: Spy) -> None:
        """As many exchanges as a round has, two with a secure sum, of the same bytes."""
        for kind in EXCHANGES & spy.sizes.keys():
            down, up = (max(each) for each in zip(*spy.sizes[kind].values(), strict=True))
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
