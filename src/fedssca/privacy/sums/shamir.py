"""Shamir's secret sharing: any `threshold` shares give the secret, fewer say nothing about it.

The shares are values at 1, 2, ... of a random polynomial of degree t - 1 modulo p, whose value at 0
is the secret. It is fixed by any t of its values: t - 1 shares are drawn at random, and the others
follow from these and the secret. p is the first prime above 2^256, so that secrets of 32 bytes fit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, combinations
from operator import mul
from typing import NamedTuple

from fedssca.privacy.sums import polynomials
from fedssca.privacy.sums.keys import KEY

__all__ = ["PRIME", "SHARE", "Recovered", "combine", "recover", "split"]

PRIME = 2**256 + 297
SHARE = KEY + 1
"""The number of bytes of a share."""
DRAWN = KEY + 16
"""The number of random bytes of a share: reduced modulo p they are uniform to 2^-127."""
TRIES = 1000
"""How many combinations of shares are tried where too many are wrong to be decoded."""


def split(secret: bytes, holders: int, threshold: int) -> list[bytes]:
    """Return one share for each of the holders 1, 2, ...; `threshold` of them are needed."""
    if not 1 <= threshold <= holders or len(secret) != KEY:
        raise ValueError(f"{threshold} of {holders} shares of a secret of {len(secret)} bytes")
    drawn = os.urandom(DRAWN * (threshold - 1))
    values = [
        int.from_bytes(drawn[at : at + DRAWN], "little") % PRIME
        for at in range(0, len(drawn), DRAWN)
    ]
    known = [int.from_bytes(secret, "little"), *values]
    points = tuple(range(threshold))
    for x in range(threshold, holders + 1):
        values.append(sum(map(mul, _weights(points, x), known)) % PRIME)
    return [value.to_bytes(SHARE, "little") for value in values]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Reconstruct the secret from the shares of `threshold` holders; more shares are ignored."""
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares, {threshold} are needed")
    points = tuple(sorted(shares))[:threshold]
    values = [int.from_bytes(shares[x], "little") for x in points]
    return _as_secret(sum(map(mul, _weights(points, 0), values)) % PRIME)


class Recovered(NamedTuple):
    """A secret from shares, some of which may be wrong."""

    secret: bytes | None
    """None if there are too few shares, or too many wrong ones."""
    wrong: tuple[int, ...] = ()
    """The holders whose shares were wrong."""


def recover(
    shares: Mapping[int, bytes], threshold: int, fits: Callable[[bytes], bool]
) -> Recovered:
    """Reconstruct the secret that `fits`, although some shares are wrong.

    Up to (shares - threshold) / 2 wrong ones are always found (Gao's decoding of Reed-Solomon
    codes); more, as long as `threshold` right ones are left, if there are few combinations to try.
    """
    if len(shares) < threshold:
        return Recovered(None)
    secret = combine(shares, threshold)
    if fits(secret):
        return Recovered(secret)
    values = {x: int.from_bytes(share, "little") % PRIME for x, share in shares.items()}
    found = polynomials.decode(values, threshold, PRIME)
    if found is not None and fits(secret := _as_secret(found[0] if found else 0)):
        wrong = [x for x, y in values.items() if polynomials.value(found, x, PRIME) != y]
        return Recovered(secret, tuple(wrong))
    if math.comb(len(shares), threshold) <= TRIES:
        for chosen in combinations(sorted(shares), threshold):
            if fits(secret := combine({x: shares[x] for x in chosen}, threshold)):
                line = polynomials.through({x: values[x] for x in chosen}, PRIME)
                wrong = [x for x, y in values.items() if polynomials.value(line, x, PRIME) != y]
                return Recovered(secret, tuple(wrong))
    return Recovered(None)


def _as_secret(number: int) -> bytes:
    # Wrong shares may give a number outside the range of secrets. Reduced, it is a wrong secret.
    return (number % 2 ** (8 * KEY)).to_bytes(KEY, "little")


@lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...], at: int) -> tuple[int, ...]:
    """The weights of the values at `points` in the value at one other point, after Lagrange.

    The weight of point x is the product of (at - z) / (x - z) over the other points z.
    """
    tops = math.prod(at - z for z in points)
    bottoms = [(at - x) * math.prod(x - z for z in points if z != x) % PRIME for x in points]
    return tuple(tops * inverse % PRIME for inverse in _inverses(bottoms))


def _inverses(numbers: Sequence[int]) -> list[int]:
    """1 / x modulo p for all of them: one inversion and three products for each."""
    before = list(accumulate(numbers, lambda a, b: a * b % PRIME, initial=1))
    rest, found = pow(before[-1], -1, PRIME), []
    for number, product in zip(reversed(numbers), reversed(before[:-1]), strict=True):
        found.append(rest * product % PRIME)
        rest = rest * number % PRIME
    return found[::-1]
