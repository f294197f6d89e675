"""SSCA with nothing to set: calibrated step sizes, and multipliers that see to the limits."""

from __future__ import annotations

from fedssca.algorithm import Algorithm
from fedssca.calibrate import calibrate
from fedssca.data.split import Columns, Rows
from fedssca.problem import Problem
from fedssca.runtime.fused import Fused
from fedssca.steered import steered_ssca

__all__ = ["auto"]


def auto(
    problem: Problem, clients: Rows | Columns, *, batch: int, rounds: int, seed: int = 0
) -> Algorithm:
    """The algorithm that `fedssca run` uses when no step sizes are given."""
    steps = calibrate(problem, batch, rounds, lambda probe: Fused(problem, clients, probe, seed))
    return steered_ssca(problem, batch=batch, rounds=rounds, **steps._asdict())
