"""Rounds with parties that hold columns: all of them are needed in every phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns
from fedssca.data.sampling import batch_indices
from fedssca.deploy.server.sites import Sites
from fedssca.deploy.stages import hides_h, shapes_of, stage_roles
from fedssca.methods.algorithm import Message, Request
from fedssca.problem.problem import Array
from fedssca.rounds.aggregate import Combine, blocks
from fedssca.rounds.client import for_party
from fedssca.rounds.exchange import Outgoing, nothing
from fedssca.run.build import Job

__all__ = ["ColumnRounds"]


class ColumnRounds:
    """The `Parties` of one stage."""

    share = 1.0
    """The share of the rows that took part in the last round: always all of them."""
    missing: Sequence[int] = ()
    """The parties that did not take part in it: never any."""

    def __init__(self, sites: Sites, stage: str, job: Job, batch: int = 0) -> None:
        """`batch` is the size of the batches that `call` draws."""
        assert isinstance(job.clients, Columns)
        assert job.problem.vertical is not None
        self._sites, self._stage, self._split = sites, stage, job.problem.vertical
        self._count, self._roles = job.clients.count, stage_roles(stage, job.clients)
        self._shapes = [shapes_of(stage, job, number) for number in range(self._count)]
        self._relay, self._passed_on = nothing, Outgoing()
        if hides_h(job):
            from fedssca.privacy.sums.hidden_exchange import relay

            self._relay = relay
        self.phases = self._roles.phases
        self.combine: Combine = jax.jit(blocks(self._split))
        server, size = np.zeros(1, np.int32), np.array([job.clients.total])
        seed = job.config.run.seed
        self._indices = jax.jit(lambda t: batch_indices(seed, t, server, size, batch)[0])

    def call(self, phase: str, request: Request) -> Sequence[Any]:
        """One phase of a round of training on a batch drawn by the run's seed."""
        found = self._phase(phase, request, self._indices(request.round), {})
        return [found[number] for number in range(self._count)]

    def message_on(self, serial: int, w: Array, rows: np.ndarray) -> Message:
        """The message of one exchange on these rows; `serial` stands in for the round."""
        request = Request(jnp.asarray(serial, jnp.int32), w)
        found = self._all_phases(request, rows, {})
        return self.combine(request, [found[number] for number in range(self._count)])

    def answer_on(self, serial: int, w: Array, rows: np.ndarray, **more: Any) -> Any:
        """What the speaker answers in one exchange on these rows, when asked for `more` too."""
        request = Request(jnp.asarray(serial, jnp.int32), w)
        return self._all_phases(request, rows, more)[self._roles.speaker]

    def _all_phases(
        self, request: Request, rows: np.ndarray, more: dict[str, Any]
    ) -> dict[int, Any]:
        for phase in self.phases:
            found = self._phase(phase, request, rows, more)
        return found

    def _phase(
        self, phase: str, request: Request, rows: Any, more: dict[str, Any]
    ) -> dict[int, Any]:
        """One phase at all parties; the first brings each its block of w and the row numbers."""
        everyone = range(self._count)
        last, share = phase == self.phases[-1], phase == "share"
        due = [s.shared if share else s.answer if last else () for s in self._shapes]
        if phase == self.phases[0]:
            here, index = jax.device_get(request), np.asarray(rows)
            sent = {i: for_party(self._split, i, here, index) | more for i in everyone}
        else:
            sent = {i: self._passed_on.pop(i, ()) for i in everyone}
        round_, kind = int(request.round), f"{self._stage}/{phase}"
        found = self._sites.exchange_trees(kind, round_, sent, due.__getitem__)
        self._sites.check_all(everyone, found, round_)
        if share:
            self._passed_on = self._relay(found, self._roles.readers)
        return found
