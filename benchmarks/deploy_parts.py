"""What a benchmark job names at server and sites; `benchmarks/deploy.py` puts it on the path."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from fedssca.deploy.conduct import Conductor, Order
from fedssca.deploy.engines.nvflare import CollabLink, Deployed
from fedssca.deploy.parts import Coordinator, Site
from fedssca.rounds.codec import decode
from fedssca.run.config import parse

ROUNDS, WARM = 60, 10


class EchoSite(Site):
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


class Spy(CollabLink):
    """Remembers the sizes of the letters of the last call."""

    def __init__(self) -> None:
        self.sizes: dict[str, dict[str, tuple[int, int]]] = {}

    def ask(self, letters: Any, timeout: float) -> Any:
        answers = super().ask(letters, timeout)
        kind = decode(next(iter(letters.values()))).kind
        self.sizes[kind] = {s: (len(d), len(answers[s].data)) for s, d in letters.items()}
        return answers


class Bench(Coordinator):
    """Rounds of a run and bare rounds of the same bytes, one after the other."""

    def _conduct(self) -> dict[str, Any]:
        assert self._folder is not None
        spy = Spy()
        order = Order(parse(self._text), self._sites, bytes.fromhex(self._run))
        conductor = Conductor(order, spy, self._folder)
        census = conductor._shake_hands()
        job = conductor._prepare(conductor._config, census)
        engine = Deployed(conductor.crew, "train", job, job.algorithm)
        state = job.algorithm.init(job.problem.start)
        ours, bare = [], []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            state = engine.advance(state, int(state.round) + 1)
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
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        (self._folder / "result.json").write_text(json.dumps(found))
        (self._folder / "config.toml").write_text(self._text)
        return {"state": "done"}

    def _rows(self, spy: Spy) -> None:
        ((down, up),) = set(spy.sizes["train/reply"].values())
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
