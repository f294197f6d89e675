"""Gaussian noise on a grid: whole numbers, drawn exactly, from cryptographic random bits.

Noise that is a floating-point number has gaps which depend on what it was added to, so that its
last bits can tell what that was. Here a number x is rounded to the grid of step g, and g Z is
added, where the whole number Z has the discrete Gaussian distribution P(z) ~ exp(-z^2 / (2 s^2)).
It is drawn with whole numbers only, by rejection from the discrete Laplace distribution of scale s
(Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020, algorithms 1
to 3).

Its account is that of the continuous Gaussian, up to a distance that is accounted for. Rounding a
continuous Gaussian of standard deviation s to whole numbers changes its account in no way, because
x is on the grid. The rounded Gaussian R and Z differ by the factor 1 + (z^2 / s^2 - 1) / (24 s^2) +
O(s^-4) in probability, so that KL(R, Z) <= chi^2(R, Z) = 1 / (288 s^4), and by Pinsker's inequality
k messages of d numbers have a total variation distance of at most

    sqrt(k d) / (24 s^2).                                                        (`off_grid`)

The sum of the noises of several clients is as good: it is within 10 (n - 1) exp(-pi^2 s^2) of the
discrete Gaussian of the summed variance in its log probabilities (Kairouz, Liu and Steinke, "The
distributed discrete Gaussian mechanism", 2021), which for s >= 2^16 is 0 to every digit.
Rounding x to the grid moves two neighbours apart by at most g in each of d numbers, sqrt(d) g in
length: s is larger by as much.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import numpy as np

from fedssca.errors import UserError
from fedssca.privacy import require_privacy

__all__ = ["FEW_STEPS", "STEPS", "Entropy", "Grid", "discrete_gaussian", "off_grid"]

STEPS, FEW_STEPS = 2.0**24, 2.0**16
"""The least standard deviation of the noise in steps of the grid: of messages, of evaluations."""


def off_grid(messages: int, numbers: int, steps: float = STEPS) -> float:
    """The total variation distance of so many messages from those with continuous noise."""
    return math.sqrt(messages * numbers) / (24 * steps**2)


class Entropy:
    """Random bits: AES in counter mode, with a key of 256 bits from the operating system."""

    def __init__(self) -> None:
        require_privacy()
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        key, start = os.urandom(32), os.urandom(16)
        self._stream = Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()

    def words(self, count: int) -> np.ndarray:
        """So many random words of 64 bits."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), np.uint64)

    def below(self, bound: np.ndarray) -> np.ndarray:
        """Whole numbers, each uniform from 0 to its own bound - 1, without any rounding."""
        bound = np.asarray(bound, np.uint64)
        out = np.empty(len(bound), np.uint64)
        left = np.arange(len(bound))
        while len(left):
            drawn, most = self.words(len(left)), bound[left]
            out[left] = drawn % most
            # The first 2^64 mod `most` words would make small numbers too likely.
            left = left[drawn < (np.uint64(0) - most) % most]
        return out

    def chosen(self, rows: int, mean: int) -> np.ndarray:
        """A Poisson sample: each row number independently, with probability mean / rows."""
        return np.flatnonzero(self.below(np.full(rows, rows, np.uint64)) < mean)

    def permutation(self, rows: int) -> np.ndarray:
        """The row numbers in a random order."""
        return np.argsort(self.words(rows), kind="stable")


def _exp(entropy: Entropy, top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Bernoulli(exp(-top / bottom)) for each ratio of whole numbers from 0 to 1.

    The first k with B_k = 0, where B_k is 1 with probability top / (k bottom), is odd with this
    probability.
    """
    odd = np.zeros(len(top), bool)
    left, k = np.arange(len(top)), np.uint64(1)
    while len(left):
        hit = entropy.below(bottom[left] * k) < top[left]
        odd[left[~hit]] = bool(k % np.uint64(2))
        left, k = left[hit], k + np.uint64(1)
    return odd


def _exp_of_any(entropy: Entropy, top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """The same for ratios above 1: as many times exp(-1), and once the rest."""
    yes = _exp(entropy, top % bottom, bottom)
    whole = top // bottom
    left = np.flatnonzero(yes & (whole > 0))
    while len(left):
        one = np.ones(len(left), np.uint64)
        fine = _exp(entropy, one, one)
        yes[left[~fine]] = False
        whole[left] -= np.uint64(1)
        left = left[fine & (whole[left] > 0)]
    return yes


def _laplace(entropy: Entropy, scale: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `count` draws with P(x) ~ exp(-|x| / scale): absolute values, and signs."""
    size = np.full(count, scale, np.uint64)
    rest = entropy.below(size)
    rest = rest[_exp(entropy, rest, size)]
    whole = np.zeros(len(rest), np.uint64)
    left = np.arange(len(rest))
    while len(left):
        one = np.ones(len(left), np.uint64)
        left = left[_exp(entropy, one, one)]
        whole[left] += np.uint64(1)
    value = rest + np.uint64(scale) * whole
    negative = entropy.words(len(value)) % np.uint64(2) == 1
    keep = ~(negative & (value == 0))
    return value[keep], negative[keep]


def discrete_gaussian(entropy: Entropy, deviation: int, count: int) -> np.ndarray:
    """Whole numbers with P(z) ~ exp(-z^2 / (2 deviation^2)); deviation from 1 to 2^26."""
    if not 1 <= deviation <= 2**26:
        raise ValueError(f"a deviation of {deviation} steps is outside 1 to 2^26")
    parts: list[np.ndarray] = []
    missing = count
    while missing > 0:
        value, negative = _laplace(entropy, deviation, int(2.3 * missing) + 16)
        # exp(-(|x| - s)^2 / (2 s^2)) is the ratio of both distributions, up to a factor.
        away = np.maximum(value, deviation) - np.minimum(value, deviation)
        away = away.astype(np.uint64)
        bottom = np.full(len(value), 2 * deviation**2, np.uint64)
        # |x| beyond 32 deviations has a probability of exp(-512), and its square no room.
        near = away < np.uint64(31 * deviation)
        value, negative, away, bottom = (a[near] for a in (value, negative, away, bottom))
        fits = _exp_of_any(entropy, away * away, bottom)
        signed = value[fits].astype(np.int64)
        parts.append(np.where(negative[fits], -signed, signed))
        missing -= int(fits.sum())
    return np.concatenate([*parts, np.zeros(0, np.int64)])[:count]


class Grid(NamedTuple):
    """The grid of one array of numbers, and the noise on it."""

    step: float
    """g, a power of two."""
    deviation: int
    """s, the standard deviation of the noise in steps."""

    @classmethod
    def of(
        cls,
        spread: float,
        ratio: float,
        numbers: int,
        finest: float = 0.0,
        least: float = STEPS,
    ) -> Grid:
        """The grid for noise of standard deviation `spread` on so many numbers.

        `ratio` is spread over what a unit can change; no step is smaller than `finest`, and the
        deviation has at least so many steps as was accounted for.
        """
        step = max(2.0 ** (math.floor(math.log2(spread)) - 24), finest)
        deviation = spread / step
        if deviation < least:
            raise UserError(
                f"privacy: noise with a standard deviation of {spread:.3g} is too small for the "
                f"sum, whose numbers have steps of {finest:.3g}: use a larger clip, or smaller "
                "batches"
            )
        # Rounded numbers of two neighbours lie up to sqrt(numbers) steps further apart.
        return cls(step, math.ceil(deviation + ratio * math.sqrt(numbers)))

    def noised(self, values: np.ndarray, entropy: Entropy) -> np.ndarray:
        """Values on the grid, with noise on the grid."""
        flat = np.rint(np.asarray(values, np.float64).ravel() / self.step)
        if not np.abs(flat).max(initial=0.0) < 2.0**52:
            raise UserError("privacy: a number that is to get noise is too large, or not finite")
        drawn = discrete_gaussian(entropy, self.deviation, flat.size)
        return ((flat.astype(np.int64) + drawn) * self.step).reshape(np.shape(values))
