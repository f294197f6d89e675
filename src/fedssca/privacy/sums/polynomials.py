"""Polynomials modulo a prime, as lists of coefficients that begin with the constant one.

Decoding finds the polynomial of degree below t through most of some points, of which a few are
wrong (Gao, 2003): it stops Euclid's algorithm for prod (x - x_i) and the polynomial through all
points halfway. Of m points, (m - t) / 2 may be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["decode", "through", "value"]


def value(line: Sequence[int], x: int, prime: int) -> int:
    """The value of a polynomial at x."""
    found = 0
    for c in reversed(line):
        found = (found * x + c) % prime
    return found


def through(points: Mapping[int, int], prime: int) -> list[int]:
    """The polynomial of lowest degree through all points (Newton's interpolation)."""
    line: list[int] = []
    zeros = [1]  # prod (x - x_i) over the points so far
    for x, y in points.items():
        scale = (y - value(line, x, prime)) * pow(value(zeros, x, prime), -1, prime) % prime
        line = _minus(line, [-scale % prime], zeros, prime)
        zeros = _minus([0, *zeros], [x], zeros, prime)
    return line


def decode(points: Mapping[int, int], terms: int, prime: int) -> list[int] | None:
    """The polynomial with `terms` coefficients through all points but a few; None if none is."""
    zeros = [1]
    for x in points:
        zeros = _minus([0, *zeros], [x], zeros, prime)
    before, now = zeros, through(points, prime)
    locator_before: list[int] = []
    locator = [1]
    while 2 * (len(now) - 1) >= len(points) + terms:
        quotient, rest = _divided(before, now, prime)
        before, now = now, rest
        locator_before, locator = locator, _minus(locator_before, quotient, locator, prime)
    found, rest = _divided(now, locator, prime)
    return None if rest or len(found) > terms else found


def _minus(
    line: Sequence[int], factor: Sequence[int], other: Sequence[int], prime: int
) -> list[int]:
    """line - factor * other, without leading zeros."""
    found = list(line) + [0] * (len(factor) + len(other) - 1 - len(line))
    for i, a in enumerate(factor):
        for j, b in enumerate(other):
            found[i + j] = (found[i + j] - a * b) % prime
    return _trimmed(found)


def _divided(line: Sequence[int], by: Sequence[int], prime: int) -> tuple[list[int], list[int]]:
    """The quotient and the rest of a division by a polynomial that is not 0."""
    rest, scale = list(line), pow(by[-1], -1, prime)
    quotient = [0] * max(0, len(line) - len(by) + 1)
    for at in reversed(range(len(quotient))):
        quotient[at] = rest[at + len(by) - 1] * scale % prime
        for j, b in enumerate(by):
            rest[at + j] = (rest[at + j] - quotient[at] * b) % prime
    return _trimmed(quotient), _trimmed(rest)


def _trimmed(line: list[int]) -> list[int]:
    while line and not line[-1]:
        line.pop()
    return line
