"""The rounds of `rounds.loop` with clients at real sites."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from fedssca.deploy.server.column_rounds import ColumnRounds
from fedssca.deploy.server.row_rounds import RowRounds
from fedssca.deploy.server.sites import Sites
from fedssca.methods.algorithm import Algorithm, State
from fedssca.problem.programs import shared
from fedssca.rounds.loop import one_round

__all__ = ["DeployedRounds", "RecordRound"]

RecordRound: TypeAlias = Callable[[int, float, float, Sequence[int]], None]
"""Sees (round, seconds, the share of the rows that took part, the asked sites that did not)."""


class DeployedRounds:
    """A `Runtime`: rounds one by one, each phase an envelope to every site."""

    def __init__(
        self,
        sites: Sites,
        parties: RowRounds | ColumnRounds,
        algorithm: Algorithm,
        record: RecordRound | None = None,
    ) -> None:
        self._sites, self._parties, self._record = sites, parties, record
        self._algorithm = algorithm._replace(update=shared(algorithm.update))

    def advance(self, state: State, until: int) -> State:
        """Run rounds until `until` updates are done."""
        while int(state.round) < until:
            begun = time.perf_counter()
            self._sites.costs.clear()
            state = one_round(self._algorithm, self._parties, state)
            state.w.block_until_ready()
            if self._record:
                seconds = time.perf_counter() - begun
                parties = self._parties
                self._record(int(state.round), seconds, parties.share, parties.missing)
        return state
