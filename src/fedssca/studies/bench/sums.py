"""What a secure sum costs: the processor time of all parties and the server together."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from fedssca.privacy import require_privacy
from fedssca.rounds.aggregate import Adder, Answerer, Arrays
from fedssca.studies.bench.timing import Timing, summary

__all__ = ["SumParties", "masked_parties", "measure_sums"]

RUN = bytes(16)
CLIENTS = 100
NUMBERS = (1, 101_632)
"""The numbers in a message: hardly any, so that only keys and shares count, and 784-128-10."""


class SumParties:
    """Parties in this process; whoever is in `gone` vanishes in that phase."""

    def __init__(
        self, parties: int, size: int, make: Callable[[int, Any], Answerer], alone: bool = True
    ) -> None:
        """With `alone` each verifies all signatures itself, as sites do and a simulation not."""
        from fedssca.privacy.sums.keys import simulated_identities

        identities = simulated_identities(parties, alone)
        self.halves = [make(number, identities[number]) for number in range(parties)]
        draw = np.random.default_rng(0).normal
        self.inputs = [draw(size=size).astype(np.float32) for _ in range(parties)]
        self.gone: dict[str, Collection[int]] = {}
        self.up: dict[str, int] = {}
        """The bytes that all parties sent in each phase of the last sum."""

    def ask(self, phase: str, sent: Mapping[int, Arrays]) -> dict[int, Arrays]:
        """Hand a request over, and count what comes back."""
        found = {
            who: self.halves[who].handle(phase, arrays, partial(self.inputs.__getitem__, who))
            for who, arrays in sent.items()
            if who not in self.gone.get(phase, ())
        }
        self.up[phase] = sum(a.nbytes for said in found.values() for a in said.values())
        return found

    def sums(self, adder: Adder, repeats: int) -> tuple[list[float], float]:
        """Return the processor seconds of each sum, and the relative error of the last."""
        seconds, asked = [], range(len(self.inputs))
        for _ in range(repeats):
            begun = time.process_time()
            found = adder.gather(self.ask, asked, np.zeros(len(self.inputs[0])))
            seconds.append(time.process_time() - begun)
        exact = np.sum([self.inputs[who] for who in found.who], axis=0, dtype=float)
        return seconds, float(np.linalg.norm(found.total - exact) / np.linalg.norm(exact))


def masked_parties(parties: int, size: int, alone: bool = True) -> tuple[SumParties, Adder]:
    """Return the clients and the server of masked sums, with default rules."""
    from fedssca.privacy.sums.graph import Rules
    from fedssca.privacy.sums.masked_client import MaskedSumClient
    from fedssca.privacy.sums.masked_server import MaskedSumServer

    rules = Rules(RUN, parties)
    clients = SumParties(parties, size, lambda n, who: MaskedSumClient(n, who, rules), alone)
    return clients, MaskedSumServer(rules)


def measure_sums(repeats: int, tick: Callable[[str], None]) -> dict[str, Any]:
    """Return `sums`: median processor seconds of a sum over 100 clients, by what happens in it."""
    require_privacy("cryptography")
    found: dict[str, Timing] = {}
    for size in NUMBERS:
        clients, server = masked_parties(CLIENTS, size)
        ways: dict[str, tuple[int, dict[str, Collection[int]]]] = {
            "the first": (1, {}),
            "a later one": (repeats, {}),
            "30 vanish before they answer": (repeats, {"reply": range(30)}),
            "10 vanish after they answered": (repeats, {"unmask": range(10)}),
        }
        for name, (count, gone) in ways.items():
            tick(f"a secure sum of {size:,} numbers: {name}")
            clients.gone = gone
            found[f"{size:,} numbers, {name}"] = Timing(tuple(clients.sums(server, count)[0]))
    medians = {name: timing.median for name, timing in found.items()}
    return {"sums": medians, "sums_seconds": summary(found)}
