"""Shamir's secret sharing: any `threshold` shares give the secret, fewer say nothing about it.

share(x) = secret + c_1 x + ... + c_(t-1) x^(t-1) modulo p, with random c; the secret is the value
at 0 of the polynomial through any t points. p is the first prime above 2^256, so that secrets of
32 bytes fit.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import lru_cache

from fedssca.privacy.sums.keys import KEY

__all__ = ["PRIME", "SHARE", "combine", "split"]

PRIME = 2**256 + 297
SHARE = KEY + 1
"""The number of bytes of a share."""


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
            value = (value * x + c) % PRIME
        shares.append(value.to_bytes(SHARE, "little"))
    return shares


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Reconstruct the secret from the shares of `threshold` holders; more shares are ignored."""
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares, {threshold} are needed")
    points = tuple(sorted(shares))[:threshold]
    values = [int.from_bytes(shares[x], "little") for x in points]
    secret = sum(a * b for a, b in zip(_at_zero(points), values, strict=True)) % PRIME
    # Wrong shares may give a number outside the range of secrets. Reduced, it is a wrong secret.
    return (secret % 2 ** (8 * KEY)).to_bytes(KEY, "little")


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
