"""Which model is returned: one of a round, an average of the last ones, or a point between two.

FedAvg with few rounds gives models whose values jump from round to round. The average of the last
models is steadier. On the segment between X, the best model that keeps all limits, and Y, a model
with a lower loss that breaks one, values change continuously: a point near the limit is sought by
linear interpolation (regula falsi). All of them are measured on training rows like any model.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord

from fedssca.run.apps.flower.values import Values

__all__ = ["Candidates", "MeasuredModel"]

TAIL = 3
"""How many of the last models are averaged, at most; with T rounds at most T / 2."""

SHORT = 0.8
"""The part of the interpolated way to the limit that is gone: values on the way to Y often rise
faster at first."""

NEAR = 0.02
"""X is near enough to a limit at this part of the largest distance; nothing more is tried."""


class MeasuredModel(NamedTuple):
    """A model, and what the clients measured of it on their training rows."""

    name: str
    round: int | None
    """The round after which it was the global model; None for a model made afterwards."""
    arrays: ArrayRecord
    found: Values
    excess: float
    """The largest (F_m - limit_m) / unit_m."""
    multipliers: dict[str, float]

    @property
    def feasible(self) -> bool:
        """Whether all limits are kept."""
        return self.excess <= 0

    @property
    def rank(self) -> tuple[float, float]:
        """The lowest is the best model: the largest violation first, then the loss."""
        return max(0.0, self.excess), self.found.loss


class Candidates:
    """The measured models of a training, as far as they are still needed."""

    def __init__(self, rounds: int) -> None:
        self._last: deque[MeasuredModel] = deque(maxlen=max(1, min(TAIL, rounds // 2)))
        self._averaged = False
        self._beyond: MeasuredModel | None = None
        self.best: MeasuredModel | None = None
        """The model with the lowest rank."""

    @property
    def broken(self) -> bool:
        """Whether the last model breaks a limit."""
        return bool(self._last) and not self._last[-1].feasible

    def add(self, model: MeasuredModel) -> None:
        """Take in a measured model."""
        if self.best is None or model.rank < self.best.rank:
            self.best = model
        if model.round is not None:
            self._last.append(model)
        # Y: among models of rounds the lowest loss; points between come closer to the limit.
        lower = self._beyond is None or model.found.loss < self._beyond.found.loss
        if not model.feasible and (lower or model.round is None):
            self._beyond = model

    def candidate(self) -> tuple[str, ArrayRecord] | None:
        """The next model to measure and its name, or None if nothing is left to try."""
        if not self._averaged and len(self._last) > 1:
            self._averaged = True
            rounds = [model.round for model in self._last]
            parts = [(1 / len(rounds), model.arrays) for model in self._last]
            return f"average of the models of rounds {rounds[0]} to {rounds[-1]}", _mean(parts)
        x, y = self.best, self._beyond
        if x is None or y is None or not x.feasible or x.excess > -NEAR:
            return None
        if y.found.loss >= x.found.loss:
            return None
        way = SHORT * x.excess / (x.excess - y.excess)
        name = f"point {way:.2f} of the way from the {_short(x)} to the {_short(y)}"
        return name, _mean([(1 - way, x.arrays), (way, y.arrays)])


def _short(model: MeasuredModel) -> str:
    """A name that does not grow when points between points are taken."""
    return "previous point" if model.name.startswith("point") else model.name


def _mean(parts: list[tuple[float, ArrayRecord]]) -> ArrayRecord:
    """The weighted sum of models; what is no floating-point number is taken from the last."""
    mixed: dict[str, Array] = {}
    for name, newest in parts[-1][1].items():
        value = newest.numpy()
        if np.issubdtype(value.dtype, np.floating):
            total = sum(share * arrays[name].numpy() for share, arrays in parts)
            value = np.asarray(total, value.dtype)
        mixed[name] = Array(value)
    return ArrayRecord(mixed)
