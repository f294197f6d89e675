"""Parties with columns around one table: the phases of a stage, and what the server passes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedssca.data import Columns
from fedssca.deploy.crew import Crew
from fedssca.deploy.stages import blind, phases_of, readers_of, shapes_of
from fedssca.rounds.exchange import Outgoing, nothing
from fedssca.run.build import Job

__all__ = ["Table", "introduce"]


class Table:
    """All parties are needed in every phase; the first brings each what it is asked."""

    def __init__(self, crew: Crew, stage: str, job: Job) -> None:
        assert isinstance(job.clients, Columns)
        self._crew, self._stage = crew, stage
        self.phases = phases_of(stage, job.clients)
        self._shapes = [shapes_of(stage, job, number) for number in range(job.clients.count)]
        self._readers, self._relay = readers_of(stage, job.clients), nothing
        self._passed: Outgoing = {}
        if blind(job):
            from fedssca.privacy.sums.hidden_exchange import relay

            self._relay = relay

    def phase(self, phase: str, round_: int, asked: Mapping[int, Any]) -> dict[int, Any]:
        """What the parties answer; `asked` counts in the first phase only."""
        last, share = phase == self.phases[-1], phase == "share"
        due = [s.shared if share else s.answer if last else () for s in self._shapes]
        sent = asked
        if phase != self.phases[0]:
            sent = {number: self._passed.pop(number, ()) for number in range(len(due))}
        found = self._crew.call(f"{self._stage}/{phase}", round_, sent, due.__getitem__)
        self._crew.all_or_away(range(len(due)), found, round_)
        if share:
            self._passed = self._relay(found, self._readers)
        return found


def introduce(crew: Crew, job: Job, seconds: float) -> None:
    """Where the h_i are hidden: every party gets the others' keys, signed by their holders."""
    if not blind(job):
        return
    everyone = range(len(crew.names))
    none: dict[int, dict[str, np.ndarray]] = {number: {} for number in everyone}
    offers = crew.ask("offer", 0, none, seconds)
    crew.all_or_away(everyone, offers, 0)
    keys = {
        f"{part} {number}": offer.arrays[part]
        for number, offer in offers.items()
        for part in ("key", "signature")
        if part in offer.arrays
    }
    met = crew.ask("meet", 0, dict.fromkeys(everyone, keys), seconds)
    crew.all_or_away(everyone, met, 0)
