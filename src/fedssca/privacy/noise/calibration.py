"""Noise on counts of calibration rows, which certify limits on new rows (`evaluate.confidence`).

For the one model that is tested, each client adds up two numbers of every mean of a quantity
(`evaluate.confidence.counts`). A row adds a vector of length 1 at most to those of a quantity, so
with Q the largest number of quantities that a row can count for, noise of standard deviation

    sigma sqrt(Q)

on every number makes them one Gaussian mechanism with multiplier sigma. If the server sees sums
only, every client adds its share 1 / survivors of the variance.

Calibration rows are in no message and in no evaluation, and training rows are in none of these
counts. So a row is in one of both, and the epsilon of a run is the larger one of the two. A site
adds up both: in another run its calibration rows may be training rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedssca.privacy.noise.discrete import FEW_STEPS
from fedssca.problem.problem import Problem

__all__ = ["CalibrationNoise", "counted_quantities"]


class CalibrationNoise(NamedTuple):
    """How much noise the counts of calibration rows carry."""

    sigma: float
    quantities: int
    """Q."""
    survivors: int
    """The clients in the smallest sum that the server can see; 0: it sees every client's counts."""

    @property
    def ratio(self) -> float:
        """The standard deviation of the noise over what a row can change in one number."""
        return self.sigma * math.sqrt(self.quantities)

    def spread(self, *, alone: bool = False) -> float:
        """The standard deviation of one client's noise; `alone`: it tests its own claims."""
        return self.ratio / math.sqrt(1 if alone else max(self.survivors, 1))

    def deviation(self, parts: int, *, alone: bool = False) -> float:
        """s of the sum of so many noises on a grid, such that E exp(t z) <= exp(t^2 s^2 / 2).

        The grid makes the noise larger by `ratio` + 1 steps at most (`discrete.Grid`), and rounding
        to it moves every part by half a step, of which there are `FEW_STEPS` in s at least.
        """
        wider = 1 + (self.ratio + 1) / FEW_STEPS
        rounded = 1 + math.sqrt(parts) / (2 * FEW_STEPS)
        return self.spread(alone=alone) * math.sqrt(parts) * wider * rounded


def counted_quantities(problem: Problem) -> int:
    """Q: the largest number of quantities under limits that a row can count for."""
    bounds = [bound for m, bound in enumerate(problem.bounds) if m + 1 not in problem.worst]
    shared = {bound.quantity for bound in bounds if bound.client is None}
    clients = {bound.client for bound in bounds if bound.client is not None}
    own = [{b.quantity for b in bounds if b.client == client} for client in clients]
    return max(1, len(shared) + max(map(len, own), default=0))
