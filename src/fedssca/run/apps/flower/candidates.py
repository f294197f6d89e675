"""Which model is returned: one of a round, an average of the last ones, or a point between two.

FedAvg with few rounds gives models whose values jump from round to round. The average of the last
models is steadier. On the segment between Y, a model that breaks a limit, and X, one that keeps all
of them, values change continuously, and a point near the limit is sought by linear interpolation
(regula falsi). Of all pairs the one with the lowest interpolated loss is tried: from a trained
model that hardly breaks a limit, a short way towards an early model that keeps it by far is enough.
All of them are measured on training rows like any model.
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

FAR = 1.25
"""How much of the interpolated way from Y to the limit is gone: values often fall more slowly."""

INSIDE = 0.01
"""The part of the largest distance to the limit by which a point is to keep it."""

GAIN = 0.01
"""The part of the loss by which a point must be expected to be better than the best model."""

KEPT = 12
"""How many of the last measured models are kept for this."""


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
        self._measured: deque[MeasuredModel] = deque(maxlen=KEPT)
        self._tried: set[tuple[str, str]] = set()
        self._averaged = False
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
        self._measured.append(model)

    def candidate(self) -> tuple[str, ArrayRecord] | None:
        """The next model to measure and its name, or None if nothing is left to try."""
        if not self._averaged and len(self._last) > 1:
            self._averaged = True
            rounds = [model.round for model in self._last]
            parts = [(1 / len(rounds), model.arrays) for model in self._last]
            return f"average of the models of rounds {rounds[0]} to {rounds[-1]}", _mean(parts)
        kept = [model for model in self._measured if model.feasible]
        broken = [model for model in self._measured if not model.feasible]
        pairs = [(y, x) for y in broken for x in kept if (y.name, x.name) not in self._tried]
        if self.best is None or not pairs:
            return None
        y, x = min(pairs, key=lambda pair: _between(*pair)[1])
        way, loss = _between(y, x)
        if loss >= (1 - GAIN) * self.best.found.loss:
            return None
        self._tried.add((y.name, x.name))
        name = f"point {way:.2f} of the way from the {_short(y)} to the {_short(x)}"
        return name, _mean([(way, x.arrays), (1 - way, y.arrays)])


def _between(y: MeasuredModel, x: MeasuredModel) -> tuple[float, float]:
    """The part of the way from Y to X that should be enough to keep the limits, and its loss."""
    way = min(1.0, FAR * (y.excess + INSIDE) / (y.excess - x.excess))
    return way, (1 - way) * y.found.loss + way * x.found.loss


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
