"""The rounds of `fedssca.loop` between machines: `call` as NVFlare Collab calls.

`Deployed` is a `Runtime` and its `Parties`, like `runtime.local`; client objects sit at the sites.
`CollabLink` carries the letters; it is the only thing here that knows the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.data.sampling import batch_indices
from fedssca.deploy.crew import Answer, Crew
from fedssca.deploy.stages import phases_of, shapes_of
from fedssca.deploy.sums import SiteSums
from fedssca.deploy.table import Table
from fedssca.methods.algorithm import Algorithm, Message, Request, State
from fedssca.rounds.aggregate import Combine, blocks, plain_sum
from fedssca.rounds.client import for_party
from fedssca.rounds.loop import one_round
from fedssca.run.build import Job

__all__ = ["CollabLink", "Deployed"]


class Deployed:
    """Rounds one by one, each phase a letter to every site."""

    def __init__(
        self,
        crew: Crew,
        stage: str,
        job: Job,
        algorithm: Algorithm,
        record: Callable[[int, float, Crew, float], None] | None = None,
        sums: SiteSums | None = None,
    ) -> None:
        """`job` as the sites know it; `record` sees (round, seconds, crew, share of the rows).

        `sums` adds up for sites that hold rows.
        """
        self._sums = sums
        self._crew, self._stage, self._job, self._record = crew, stage, job, record
        self._algorithm = algorithm._replace(update=jax.jit(algorithm.update))
        self.phases = phases_of(stage, job.clients)
        self._shapes = cache(lambda number: shapes_of(stage, job, number))
        split = job.problem.vertical
        self.combine: Combine = plain_sum if split is None else jax.jit(blocks(split))
        if isinstance(job.clients, Columns):
            self._table = Table(crew, stage, job)
        server, size = np.zeros(1, np.int32), np.array([job.clients.total])
        seed = job.config.run.seed
        self._indices = jax.jit(lambda t: batch_indices(seed, t, server, size, algorithm.batch)[0])
        self._share = 1.0

    def advance(self, state: State, until: int) -> State:
        """Rounds until `until` updates are done."""
        while int(state.round) < until:
            begun = time.perf_counter()
            self._crew.tallies.clear()
            state = one_round(self._algorithm, self, state)
            state.w.block_until_ready()
            if self._record:
                seconds = time.perf_counter() - begun
                self._record(int(state.round), seconds, self._crew, self._share)
        return state

    def call(self, phase: str, request: Request) -> Sequence[Any]:
        """One phase at all sites; the payloads for the server, in the order of the sites."""
        if isinstance(self._job.clients, Rows):
            return self._rows(phase, request)
        return self._columns(phase, request, self._indices(request.round))

    def sweep(self, request: Request, index: np.ndarray) -> Message:
        """One exchange of parties with columns on rows of the caller's choice."""
        for phase in self.phases:
            payloads = self._columns(phase, request, index)
        return self.combine(request, payloads)

    def _rows(self, phase: str, request: Request) -> Sequence[Any]:
        clients = self._job.clients
        assert isinstance(clients, Rows)
        asked = list(range(clients.count))
        if request.turnout:
            pairs = zip(*(np.asarray(part).tolist() for part in request.turnout), strict=True)
            asked = [number for number, answers in pairs if answers]
        assert self._sums is not None
        published = jax.device_get(request._replace(turnout=()))
        found = self._sums.gather(
            self._stage, int(request.round), published, asked, self._shapes(0).answer
        )
        present = sum(clients.sizes[number] for number in found.who)
        due = sum(clients.sizes[number] for number in asked)
        self._share = present / due if due else 1.0
        if present in (0, due):
            return [found.total]
        scale = due / present
        return [jax.tree.map(lambda leaf: leaf * np.asarray(scale, leaf.dtype), found.total)]

    def _columns(self, phase: str, request: Request, index: Any) -> Sequence[Any]:
        """Parties with columns: the first phase brings each its block, the rest goes by round."""
        split = self._job.problem.vertical
        assert split is not None
        asked, everyone = {}, range(self._job.clients.count)
        if phase == self.phases[0]:
            here, rows = jax.device_get(request), np.asarray(index)
            asked = {number: for_party(split, number, here, rows) for number in everyone}
        found = self._table.phase(phase, int(request.round), asked)
        return [found[number] for number in everyone] if phase == self.phases[-1] else []


class CollabLink:
    """Letters as Collab calls of `handle` at the sites; one thread of the engine a site."""

    def ask(self, letters: Mapping[str, bytes], timeout: float) -> Mapping[str, Answer]:
        """All sites at once; each answer with the time it took."""
        from nvflare.collab import collab

        begun = time.perf_counter()
        seconds: dict[str, float] = {}

        def clock(site: str) -> Callable[..., Any]:
            def arrived(gcc: Any, result: Any) -> Any:
                del gcc
                seconds[site] = time.perf_counter() - begun
                return result

            return arrived

        waiting = {
            site: collab.get_clients([site])(
                blocking=False, timeout=timeout, process_resp_cb=clock(site)
            ).handle(data)
            for site, data in letters.items()
        }
        answers = {}
        for site, results in waiting.items():
            got = [data for _, data in results]
            if got:
                answers[site] = Answer(got[0], "", seconds.get(site, 0.0))
            else:
                why = results.failures.get(site)
                answers[site] = Answer(None, _reason(why), time.perf_counter() - begun)
        return answers


def _reason(failure: Any) -> str:
    """One line of what the engine says."""
    return " ".join(str(failure).split())[:200] if failure else "no answer"
