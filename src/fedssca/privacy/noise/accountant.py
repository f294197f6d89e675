"""What messages spend of privacy: (epsilon, delta) from their number, their noise and the sampling.

A message is one Gaussian mechanism: all its parts, each divided by what a unit can change in it,
are one vector, and the noise has `sigma` times the length that a unit can change of it. Two data
sets are neighbours if the contribution of one unit is taken out of one of them; the numbers of rows
N_i are public and stay as they are. A `Release` is a number of such messages:

    rate < 1    every row is in a batch with probability q, independently (Poisson sampling): the
                privacy loss distribution of the subsampled Gaussian, an upper bound, discretised;
    rate = 1    the unit is in all of them, or the server knows in which: k messages with sigma are
                one with sigma / sqrt(k), in closed form.

Releases of different kinds compose: their loss distributions are convolved (`epsilon_of`). Several
messages about ONE batch are not several draws of a batch. They are one message with the noise
sigma / sqrt(k).

Batches of a fixed size B of N_i rows have no such neighbours: where one row is missing, another one
takes its place. `epsilon_replaced` therefore compares data sets in which one row is replaced by
another one, which changes a sum by up to 2 C, so that half the noise counts. Its value is the
smaller one of the Renyi bound for sampling without replacement (Wang, Balle and Kasiviswanathan,
2019) and of the Gaussian mechanism without any sampling.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedssca.errors import UserError
from fedssca.privacy import require_privacy

__all__ = ["Release", "busiest", "epsilon_of", "epsilon_replaced", "multiplier", "sigma_of"]

FINE, COARSE = 0.01, 0.1
"""Steps of the privacy loss, relative to the loss of one message: for results, and for searches."""
HOPELESS = 2000.0
"""An epsilon from which on the simplest bound is good enough; others lose all digits there."""
LEAST = 0.1
"""Messages with a smaller noise multiplier are accounted for without sampling, an upper bound."""


class Release(NamedTuple):
    """So many messages, each of them one Gaussian mechanism."""

    sigma: float
    """The noise multiplier."""
    messages: int
    rate: float = 1.0
    """q, the probability that a unit is in a message, unseen; 1: it is, or the server knows."""
    batch: tuple[int, int] | None = None
    """B and N_i where batches have a fixed size; then `rate` is 1 for `epsilon_of`."""
    lost: float = 0.0
    """The total variation distance of all these messages from what is accounted for."""


@functools.lru_cache(maxsize=512)
def epsilon_of(releases: tuple[Release, ...], delta: float, fine: float = FINE) -> float:
    """The epsilon of all releases together; neighbours: one unit more or less.

    Let every message be within total variation `lost` of one that is accounted for exactly. Then

        delta  =  delta' + (1 + e^epsilon) lost,

    where (epsilon, delta') holds for the latter. For a large epsilon the factor makes this useless;
    then the bound for messages without sampling holds, which discrete noise keeps without any loss.
    """
    used = tuple(each for each in releases if each.messages)
    if not used:
        return 0.0
    require_privacy("dp_accounting")
    joint = _concentrated(_joint_sigma(used), delta)
    if joint > HOPELESS:
        return joint
    found = _with_loss(lambda left: _exact(used, left, fine), delta, sum(r.lost for r in used))
    return min(found, joint)


@functools.lru_cache(maxsize=64)
def epsilon_replaced(releases: tuple[Release, ...], delta: float) -> float:
    """The epsilon of all releases together; neighbours: one row replaced by another one."""
    used = tuple(each for each in releases if each.messages)
    if not used:
        return 0.0
    require_privacy("dp_accounting")
    import dp_accounting as dp

    relation = dp.NeighboringRelation.REPLACE_ONE
    accountant = dp.rdp.RdpAccountant(neighboring_relation=relation)
    for each in used:
        noise = dp.GaussianDpEvent(each.sigma / 2)
        if each.batch:
            size, rows = each.batch
            noise = dp.SampledWithoutReplacementDpEvent(rows, size, noise)
        accountant.compose(noise, each.messages)

    def bound(left: float) -> float:
        plain = dp.get_epsilon_gaussian(_joint_sigma(used) / 2, left)
        return float(min(accountant.get_epsilon(left), plain))

    found = _with_loss(bound, delta, sum(r.lost for r in used))
    return min(found, _concentrated(_joint_sigma(used) / 2, delta))


def _concentrated(sigma: float, delta: float) -> float:
    """epsilon of rho = 1 / (2 sigma^2) in concentrated differential privacy.

    Continuous and discrete Gaussian have the same rho (Canonne, Kamath and Steinke, theorem 4).
    """
    rho = 1 / (2 * sigma**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def _with_loss(epsilon: Callable[[float], float], delta: float, lost: float) -> float:
    """The least epsilon (to 1e-6) with epsilon(delta - (1 + e^epsilon) lost) <= epsilon."""
    found = epsilon(delta)
    for _ in range(20):
        left = delta - (1 + math.exp(min(found, 700.0))) * lost
        if left <= 0:
            return math.inf
        if lost == 0 or (more := epsilon(left)) <= found:
            return found
        found = more * (1 + 1e-6)
    return math.inf


def _joint_sigma(releases: Sequence[Release]) -> float:
    """The sigma of the one message that says as much as all of these without any sampling."""
    return float(1 / np.sqrt(sum(each.messages / each.sigma**2 for each in releases)))


def _exact(releases: tuple[Release, ...], delta: float, fine: float) -> float:
    from dp_accounting import get_epsilon_gaussian

    # With hardly any noise the loss distribution has no end, and sampling hardly helps.
    known = [each for each in releases if each.rate >= 1 or each.sigma < LEAST]
    sampled = [each for each in releases if each not in known]
    if not sampled:
        return float(get_epsilon_gaussian(_joint_sigma(known), delta))
    # Losses that are added up need steps of one length: as fine as the smallest of them needs.
    step = min(float(np.clip(fine * r.rate / r.sigma, 1e-5, 1e-3)) for r in sampled)
    parts = [_one(r.sigma, r.rate, step).self_compose(r.messages) for r in sampled]
    if known:
        parts.append(_one(_joint_sigma(known), 1.0, step))
    total = functools.reduce(lambda left, right: left.compose(right), parts)
    return float(total.get_epsilon_for_delta(delta))


@functools.lru_cache(maxsize=32)
def _one(sigma: float, rate: float, step: float) -> Any:
    """The privacy loss distribution of one message, in steps of this length."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=step
    )


def sigma_of(target: float, delta: float, count: int) -> float:
    """The noise multiplier at which `count` messages without sampling spend `target`."""
    require_privacy("dp_accounting")
    from dp_accounting import get_sigma_gaussian

    return float(get_sigma_gaussian(min(target, 100.0), delta) * np.sqrt(count)) * (1 + 1e-6)


def multiplier(target: float, spent: Callable[[float], float], least: float = 0.25) -> float:
    """The least noise multiplier (to 0.1 %, rounded up) at which `spent` is at most `target`.

    log(spent) is nearly linear in log(multiplier), so few trials do.
    """
    require_privacy("dp_accounting")
    low, high, above, below = least, 2 * least, math.inf, spent(2 * least)
    while below > target:
        low, high, above, below = high, 2 * high, below, spent(2 * high)
        if high > 1e6:
            raise UserError(f"privacy.epsilon = {target:g} needs more noise than any run bears")
    for trial in range(60):
        if high <= 1.001 * low or below >= 0.999 * target:
            break
        share = 0.5
        if trial % 3 != 2 and math.isfinite(above) and below > 0:
            share = math.log(above / (0.9995 * target)) / math.log(above / below)
        middle = low * (high / low) ** min(max(share, 0.02), 0.98)
        found = spent(middle)
        if found <= target:
            high, below = middle, found
        else:
            low, above = middle, found
    return high


def busiest(members: Iterable[np.ndarray], total: int) -> tuple[int, ...]:
    """How often the busiest of `total` units took part after 0, 1, 2, ... rounds."""
    counts, most = np.zeros(total, int), [0]
    for present in members:
        counts[present] += 1
        most.append(max(most[-1], int(counts[present].max(initial=0))))
    return tuple(most)
