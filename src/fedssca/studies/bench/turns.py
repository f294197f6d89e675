"""Rounds of a run and bare rounds of the same bytes, in turn in one job.

A turn is several rounds, and the first of them does not count: an engine may look for messages at
fixed times (Flower's simulation every 0.1 s), so that the time of a round depends on when the one
before it ended.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedssca.deploy.engines.calls import CallLink
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.rounds.codec import decode
from fedssca.run.config import render
from fedssca.run.privacy import server_half

__all__ = ["Spy", "in_turn"]

TURNS, ROUNDS, WARM = 6, 11, 10
"""The most turns of each kind, the rounds of a turn, and rounds before the first turn."""

EXCHANGES = {"train/reply", "sum/unmask"}
"""The exchanges of a round with rows; those of keys are left out, which come once."""


class Spy(CallLink):
    """A link that remembers the sizes of the envelopes of the last calls."""

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self.sizes: dict[str, dict[str, tuple[int, int]]] = {}

    def ask(self, envelopes: Any, timeout: float, patience: Any = None) -> Any:
        """Ask as the link does, and note the bytes of each envelope and answer."""
        answers = super().ask(envelopes, timeout, patience)
        kind = decode(next(iter(envelopes.values()))).kind
        given = {s: answers[s].data for s in envelopes}  # a late site has given nothing
        self.sizes[kind] = {s: (len(envelopes[s]), len(d)) for s, d in given.items() if d}
        return answers

    def exchanges(self) -> list[tuple[int, int]]:
        """The bytes down and up of each exchange of a round with rows."""
        return [
            tuple(max(each) for each in zip(*self.sizes[kind].values(), strict=True))
            for kind in EXCHANGES & self.sizes.keys()
        ]


def in_turn(run: RunOrder, spy: Spy, folder: Path, bare: Callable[[Any, Any], None]) -> None:
    """Time rounds of the run and calls of bare(job, census); write what was found to result.json.

    A run of few rounds has fewer turns, and one at least.
    """
    asked = run.config.algorithm.rounds
    turns = TURNS if asked == "auto" else max(1, min(TURNS, (asked - WARM) // ROUNDS))
    server = RunServer(run, spy, folder)
    census = server._preparation.census()
    job = server._preparation.prepare(server._config, census)
    adder = server_half(job.config, run.run, len(run.sites))
    rounds = server._rounds("train", job, job.algorithm, adder)
    state = job.algorithm.init(job.problem.start)

    def ours() -> None:
        nonlocal state
        state = rounds.advance(state, int(state.round) + 1)

    def theirs() -> None:
        bare(job, census)

    for _ in range(WARM):
        ours()
        theirs()
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(turns):
        for name, one in (("ours", ours), ("bare", theirs)):
            times[name] += _seconds(one)
    found = {
        "dimension": job.problem.dimension,
        **{name: statistics.mean(each) for name, each in times.items()},
        "medians": {name: statistics.median(each) for name, each in times.items()},
        "bytes": spy.sizes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(found))
    (folder / "config.toml").write_text(render(run.config))


def _seconds(one: Callable[[], None]) -> list[float]:
    """The seconds of the rounds of a turn but the first."""
    ends = []
    for _ in range(ROUNDS):
        one()
        ends.append(time.perf_counter())
    return [end - begun for begun, end in itertools.pairwise(ends)]
