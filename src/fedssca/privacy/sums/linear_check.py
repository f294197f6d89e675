"""A check that a sum of integer vectors was not changed on its way: it can be added up like them.

The parties share a secret prime P of 128 bits. A vector x of signed 64-bit integers is read as one
large integer, and its check is the remainder

    N(x) = sum_j (x_j + 2^63) 2^(64 j)  modulo P.

N is linear up to a constant: N(x) + N(y) = N(x + y) + N(0), as long as no entry leaves the range.
Whoever adds d to the sum and e to its check, without knowing P, is not noticed only if P divides
the integer that d and e make. That integer has at most half as many prime factors of 128 bits as x
has entries, out of 2^120 primes.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from fedssca.privacy.sums.keys import derive, pack_fields

__all__ = ["LIMBS", "LinearCheck"]

LIMBS = 4
"""The number of further entries in which a check is sent, 32 bits in each."""
BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
"""The bases of the test for primes; a random composite passes them with probability below 2^-40."""
SIGN = np.uint64(1 << 63)


class LinearCheck:
    """Makes and tests checks; all parties with the same seed have the same prime."""

    def __init__(self, seed: bytes) -> None:
        self._prime = _prime(seed)

    def limbs(self, vector: np.ndarray) -> np.ndarray:
        """The check of a vector of fixed-point numbers, to be sent and added up with it."""
        rest = self._remainder(vector)
        return np.array([(rest >> 32 * k) & 0xFFFFFFFF for k in range(LIMBS)], np.uint64)

    def holds(self, total: np.ndarray, limbs: np.ndarray, addends: int) -> bool:
        """Whether `total` is the sum of so many vectors whose checks add up to `limbs`."""
        said = sum(int(limb) << 32 * k for k, limb in enumerate(limbs))
        nothing = self._remainder(np.zeros_like(total))
        due = self._remainder(total) + (addends - 1) * nothing
        return (said - due) % self._prime == 0

    def _remainder(self, vector: np.ndarray) -> int:
        return int.from_bytes((vector ^ SIGN).astype("<u8").tobytes(), "little") % self._prime


def _prime(seed: bytes) -> int:
    """The first prime in a sequence of 128-bit numbers that the seed makes."""
    for number in count():
        drawn = int.from_bytes(derive(seed, pack_fields("prime", number))[:16])
        candidate = drawn | 1 << 127 | 1
        if all(candidate % base for base in BASES) and _seems_prime(candidate):
            return candidate
    raise AssertionError


def _seems_prime(number: int) -> bool:
    """Miller and Rabin's test."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in BASES:
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True
