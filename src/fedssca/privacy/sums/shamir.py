"""Shamir's secret sharing: any `threshold` shares give the secret, fewer say nothing about it.

share(x) = secret + c_1 x + ... + c_(t-1) x^(t-1) modulo p, with random c; the secret is the value
at 0 of the polynomial through any t points. p is the first prime above 2^256, so that secrets of
32 bytes fit.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from fedssca.privacy.sums import polynomials
from fedssca.privacy.sums.keys import KEY

__all__ = ["PRIME", "SHARE", "Recovered", "combine", "recover", "split"]

PRIME = 2**256 + 297
SHARE = KEY + 1
"""The number of bytes of a share."""
TRIES = 1000
"""How many combinations of shares are tried where too many are wrong to be decoded."""


def split(secret: bytes, holders: int, threshold: int) -> list[bytes]:
    """Return one share for each of the holders 1, 2, ...; `threshold` of them are needed."""
    if not 1 <= threshold <= holders or len(secret) != KEY:
        raise ValueError(f"{threshold} of {holders} shares of a secret of {len(secret)} bytes")
    powers = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    powers.append(int.from_bytes(secret, "little"))
    shares = []
    for x in range(1, holders + 1):
        value = 0
        for c in powers:
            value = value * x + c  # x is small: one reduction at the end takes a third of the time
        shares.append((value % PRIME).to_bytes(SHARE, "little"))
    return shares


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Reconstruct the secret from the shares of `threshold` holders; more shares are ignored."""
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares, {threshold} are needed")
    points = tuple(sorted(shares))[:threshold]
    values = [int.from_bytes(shares[x], "little") for x in points]
    secret = sum(a * b for a, b in zip(_at_zero(points), values, strict=True)) % PRIME
    return _as_secret(secret)


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


@lru_cache(maxsize=1024)
def _at_zero(points: tuple[int, ...]) -> tuple[int, ...]:
    """The coefficients of Lagrange's interpolation at 0."""
    found = []
    for x in points:
        top = bottom = 1
        for other in points:
            if other != x:
                top = top * other % PRIME
                bottom = bottom * (other - x) % PRIME
        found.append(top * pow(bottom, -1, PRIME) % PRIME)
    return tuple(found)
