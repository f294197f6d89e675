"""What a run spends of privacy: (epsilon, delta) from the number of messages and their noise.

A round is one Gaussian mechanism: all parts of a message, each divided by what a unit can change
in it, are one vector; the noise has `sigma` times the length that a unit can change of it. Of k
rounds, in each of which a unit takes part with probability q, unseen,

    epsilon(k)    q < 1: privacy loss distributions of the Poisson-subsampled Gaussian (an upper
                  bound, discretised), neighbours: one unit more or less;
                  q = 1: in closed form, for k rounds with sigma are one with sigma / sqrt(k).

Who knows in which rounds a unit took part gains nothing from the others: then q = 1, and k is how
often the busiest unit took part. Who takes part does not depend on the data, so that is counted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedssca.errors import UserError
from fedssca.privacy import require_privacy

__all__ = ["Ledger", "busiest", "epsilon", "multiplier"]

ASSUMPTION = (
    "every sample is in a batch with probability {rate:.4g}, independently (Poisson sampling); "
    "in fact batches have a fixed size and are drawn without replacement"
)


@dataclass(frozen=True)
class Ledger:
    """What has been spent after so many rounds."""

    sigma: float
    delta: float
    unit: str
    rate: float
    """q: how likely a unit is in a round, for the server; 1: the server knows who is."""
    seen: float
    """The same for who sees the trained models only, and not who takes part."""
    rounds: int
    """Updates that the run is to do."""
    uses: tuple[int, ...] | None
    """The rounds that the busiest unit took part in after 0, 1, 2, ... rounds; None: all."""
    batch: tuple[int, int] | None = None
    """B and N_i where rows are drawn without replacement, for the bound that needs no Poisson."""
    extra: int = 0
    """Messages besides the rounds': probes, and rounds that a resumed deployment sent twice."""

    def also(self, messages: int) -> Ledger:
        """The same with more messages besides the rounds'."""
        return replace(self, extra=self.extra + messages)

    def count(self, rounds: int) -> int:
        """Messages that any unit is in."""
        used = rounds if self.uses is None else self.uses[min(rounds, len(self.uses) - 1)]
        return self.extra + used

    @property
    def planned(self) -> int:
        """Messages that a client sends in the whole run, at most."""
        return self.extra + self.rounds

    def spent(self, rounds: int) -> float:
        """epsilon after so many rounds; on the way there from a line through powers of two.

        In log k and log epsilon, that is: exact sums for every evaluated round would take longer
        than the rounds.
        """
        k = self.count(rounds)
        if k == 0 or rounds >= self.rounds:
            return epsilon(self.sigma, self.delta, self.rate, k)
        low = int(2 ** (k.bit_length() - 1))
        ends = [epsilon(self.sigma, self.delta, self.rate, end) for end in (low, 2 * low)]
        if min(ends) <= 0:
            return ends[1] if k > low else ends[0]
        return float(np.exp(np.interp(np.log2(k / low), [0, 1], np.log(ends))))

    def report(self, rounds: int) -> dict[str, Any]:
        """What result.json says; here nothing is interpolated."""
        k = self.count(rounds)
        amplified = self.rate < 1
        said: dict[str, Any] = {
            "epsilon": epsilon(self.sigma, self.delta, self.rate, k),
            "delta": self.delta,
            "noise_multiplier": self.sigma,
            "privacy_unit": self.unit,
            "private_messages": k,
            "sampling_rate": self.rate,
            "accountant": "PLD, one unit more or less" if amplified else "Gaussian, closed form",
            "assumption": ASSUMPTION.format(rate=self.rate)
            if amplified
            else "the server knows who takes part in a round",
        }
        if amplified and self.batch:
            said["epsilon_without_replacement"] = without_replacement(
                self.sigma, self.delta, *self.batch, k
            )
        if self.seen < self.rate:
            outside = epsilon(self.sigma, self.delta, self.seen, rounds + self.extra)
            said["epsilon_outside"] = min(outside, said["epsilon"])
        return said


@functools.lru_cache(maxsize=256)
def epsilon(sigma: float, delta: float, rate: float, count: int) -> float:
    """epsilon of `count` rounds."""
    if count == 0:
        return 0.0
    require_privacy("dp_accounting")
    if rate >= 1:
        from dp_accounting import get_epsilon_gaussian

        return float(get_epsilon_gaussian(sigma / np.sqrt(count), delta))
    return float(_one(sigma, rate, 0.01).self_compose(count).get_epsilon_for_delta(delta))


@functools.lru_cache(maxsize=8)
def _one(sigma: float, rate: float, fine: float) -> Any:
    """The privacy loss of one round; steps of the loss as fine as the loss is small."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        sigma,
        sampling_prob=rate,
        value_discretization_interval=float(np.clip(fine * rate / sigma, 1e-5, 1e-3)),
    )


@functools.lru_cache(maxsize=64)
def without_replacement(sigma: float, delta: float, batch: int, rows: int, count: int) -> float:
    """epsilon by RDP for batches of a fixed size, neighbours: one sample replaced by another.

    Replacing moves a sum by up to 2 C, so this bound sees half the noise: it is a loose one.
    """
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    event = dp.SampledWithoutReplacementDpEvent(rows, batch, dp.GaussianDpEvent(sigma / 2))
    return float(accountant.compose(event, count).get_epsilon(delta))


@functools.lru_cache(maxsize=64)
def multiplier(target: float, delta: float, rate: float, count: int) -> float:
    """The least noise multiplier (to 0.1 %, rounded up) that spends at most `target`."""
    require_privacy("dp_accounting")
    if count == 0:
        raise UserError("privacy.epsilon: a run without a round spends nothing, train for longer")
    if rate >= 1:
        from dp_accounting import get_sigma_gaussian

        return float(get_sigma_gaussian(target, delta) * np.sqrt(count)) * (1 + 1e-6)

    def enough(sigma: float) -> bool:
        spent = _one(sigma, rate, 0.1).self_compose(count).get_epsilon_for_delta(delta)
        return bool(spent <= target)

    low, high = 0.25, 0.5
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e5:
            raise UserError(f"privacy.epsilon = {target:g} needs more noise than any run bears")
    while high > 1.001 * low:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def busiest(members: Iterable[np.ndarray], total: int) -> tuple[int, ...]:
    """How often the busiest of `total` units took part after 0, 1, 2, ... rounds."""
    counts, most = np.zeros(total, int), [0]
    for present in members:
        counts[present] += 1
        most.append(max(most[-1], int(counts[present].max(initial=0))))
    return tuple(most)
