"""Parties in this process, with a schedule of who vanishes when, and a record of what was said."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fedssca.privacy.sums.graph import Rules
from fedssca.privacy.sums.keys import simulated_identities
from fedssca.privacy.sums.masked_client import MaskedSumClient
from fedssca.privacy.sums.masked_server import MaskedSumServer
from fedssca.rounds.aggregate import Arrays, Gathered

RUN = bytes(range(16))
PHASES = ("keys", "shares", "reply", "unmask")
Tamper = Callable[[str, int, Arrays], Arrays]
"""(phase, party, what it was sent or answers) -> what arrives."""


class MaskedSums:
    """The clients and the server of masked sums in one process."""

    def __init__(self, inputs: Sequence[Any], **rules: Any) -> None:
        self.inputs = list(inputs)
        self.rules = Rules(RUN, len(self.inputs), **rules)
        identities = simulated_identities(len(self.inputs))
        self.clients = [MaskedSumClient(i, one, self.rules) for i, one in enumerate(identities)]
        self.server = MaskedSumServer(self.rules)
        self.gone: dict[str, Collection[int]] = {}
        self.down: Tamper = lambda phase, who, arrays: arrays
        self.up: Tamper = lambda phase, who, arrays: arrays
        self.seen: list[tuple[str, int, Arrays]] = []

    def ask(self, phase: str, sent: Mapping[int, Arrays]) -> dict[int, Arrays]:
        found = {}
        for who, arrays in sent.items():
            if who in self.gone.get(phase, ()):
                continue
            asked = self.down(phase, who, arrays)
            said = self.clients[who].handle(phase, asked, lambda who=who: self.inputs[who])
            found[who] = self.up(phase, who, said)
            self.seen.append((phase, who, found[who]))
        return found

    def gather(self, asked: Sequence[int] | None = None) -> Gathered:
        return self.server.gather(self.ask, asked or range(len(self.inputs)), self.inputs[0])

    def check(self, found: Gathered) -> None:
        """The sum of those who are in it, to the last bit of fixed point."""
        exact = sum(np.rint(self.inputs[i] * 2.0**40) for i in found.who) * 2.0**-40
        np.testing.assert_array_equal(found.total, exact)


def inputs(count: int, size: int = 7, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(count, size)))
