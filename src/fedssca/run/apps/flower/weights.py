"""How values at the global model set the weights of limits, for trainings of few rounds.

The multiplier of limit m is nu_m = s_m r_m. Here r_m = |grad F_0| / |grad F_m|, with gradients with
respect to the model's output, is the unit in which loss and constraint push the output equally
far (the smallest ratio of all rounds, because |grad F_m| vanishes where a limit is kept easily).
The strength s_m has no unit. It is zero until limit m is broken, or would be half a round later,
then rises by at most UP per round, and falls by at most a part DOWN per round while the limit is
kept. All distances to the limit are divided by the largest one of the training. So neither the
unit of the loss nor that of a constraint changes anything.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Weights"]

UP = 0.3
"""The largest rise of a strength in one round."""

DOWN = 0.2
"""The largest part of a strength that is lost in one round."""

SHARP = 0.1
"""The part of the largest distance to the limit at which strengths move at full speed."""

RESERVE = 0.01
"""The part of the largest distance to the limit by which a limit is to be kept."""

EARLY = 0.3
"""The part of the rounds in which all strengths stay zero: at first little is learnt, and a value
that is far beyond its limit then says nothing about where it will end."""

LARGEST = 2.0
"""The sum of strengths above which all weights are divided, so that local training stays stable."""


class Weights:
    """The multipliers of a training, moved once per round by what the clients measured."""

    def __init__(self, limits: np.ndarray, rounds: int) -> None:
        self._limits, self._rounds, self._t = limits, rounds, 0
        self._last = np.zeros(len(limits))
        self._strengths = np.zeros(len(limits))
        self._ratios = np.full(len(limits), np.inf)
        self.units = np.zeros(len(limits))
        """The largest distance of each value to its limit so far."""

    @property
    def multipliers(self) -> np.ndarray:
        """nu_1..nu_M."""
        return self._strengths * np.where(np.isfinite(self._ratios), self._ratios, 0.0)

    @property
    def active(self) -> bool:
        """Whether some limit has a weight."""
        return bool((self._strengths > 0).any())

    def sent(self) -> np.ndarray:
        """a_0..a_M, the weights of the loss and of the limits in the clients' criterion."""
        return np.array([1.0, *self.multipliers]) / max(1.0, self._strengths.sum() / LARGEST)

    def move(self, values: np.ndarray, ratios: np.ndarray) -> None:
        """Take in F_m(w(t)) and r_m(t), which are measured at the model that round t received."""
        self._t += 1
        broken = values - self._limits
        self.units = np.maximum(self.units, np.abs(broken))
        self._ratios = np.fmin(self._ratios, ratios)
        trend = broken - self._last if self._t > 1 else np.zeros_like(broken)
        self._last = broken
        if self._t <= max(1, EARLY * self._rounds):
            return
        # A broken limit is expected to fall on, as learning curves do, linearly in log t. One
        # that is kept is expected to rise for half a round.
        left = self._t * np.log(max(1.0, self._rounds / self._t))
        ahead = np.where(broken > 0, 0.85 * left * np.minimum(trend, 0), np.maximum(trend, 0) / 2)
        unit = np.where(self.units > 0, self.units, 1.0)
        push = np.clip(((broken + ahead) / unit + RESERVE) / SHARP, -1, 1)
        up, down = self._strengths + UP * push, self._strengths * (1 + DOWN * push)
        self._strengths = np.where(np.isfinite(self._ratios), np.where(push > 0, up, down), 0.0)
