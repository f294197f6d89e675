"""SSCA with nothing to set: calibrated step sizes, and multipliers that see to the limits."""

from __future__ import annotations

from fedssca.data.split import Columns, Rows
from fedssca.data.stream import Streams
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.calibrate import calibrate
from fedssca.methods.steered import steered_ssca
from fedssca.problem.problem import Problem
from fedssca.rounds.fused import Fused

__all__ = ["auto"]


def auto(
    problem: Problem, clients: Rows | Columns | Streams, *, batch: int, rounds: int, seed: int = 0
) -> Algorithm:
    """The algorithm that `fedssca run` uses when no step sizes are given.

    Step sizes for `Streams` come from their held-out rows, and no row of theirs is used up.
    """
    held, size = _held(clients, batch)
    steps = calibrate(problem, size, rounds, lambda probe: Fused(problem, held, probe, seed))
    return steered_ssca(problem, batch=batch, rounds=rounds, **steps._asdict())


def _held(clients: Rows | Columns | Streams, batch: int) -> tuple[Rows | Columns, int]:
    """Rows to probe, and the batch: of a stream's held-out rows as many as all clients draw."""
    if not isinstance(clients, Streams):
        return clients, batch
    check = clients.check
    return check, min(batch * clients.count // check.count, *check.sizes)
