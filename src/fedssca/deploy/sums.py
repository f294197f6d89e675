"""Sums over the sites that hold rows: what the server and the sites agree on.

What a sum needs besides the stage's own request and answer (keys, shares, masked vectors) travels
in the same envelopes under names that start with "sum:", or in envelopes of the kind "sum/<phase>".
"""

from __future__ import annotations

import math
from hashlib import sha256
from typing import TYPE_CHECKING

from fedssca.privacy import require_privacy
from fedssca.privacy.sums.fixed_point import BITS
from fedssca.rounds.aggregate import Arrays
from fedssca.run.config import Config
from fedssca.run.privacy import hides_sums, noisy

if TYPE_CHECKING:
    from fedssca.privacy.sums.graph import Rules

__all__ = ["SUM", "census_rules", "finest_of", "for_stage", "for_sum", "marked", "weight_of"]

SUM = "sum"
MARK = "sum:"


def census_rules(config: Config, run: bytes, sites: int) -> Rules:
    """The rules of the sums before round 1: each is opened only if all sites have answered.

    Otherwise the sums with and without one site would give away what this site tells.
    """
    require_privacy()
    from fedssca.privacy.sums.graph import Rules

    own = sha256(b"census" + run).digest()[: len(run)]  # No key of these sums is valid in others.
    return Rules(own, sites, config.privacy.neighbours, 1.0)


def weight_of(stage: str, rows: int, config: Config) -> float:
    """What a hidden answer is divided by before it is masked, and its sum multiplied by.

    Sums over all rows of a site would otherwise leave the range of the fixed-point numbers. And
    messages with noise are small: without this the grid of the sum would be too coarse for their
    noise. It is a power of two, so that numbers on a grid stay on a grid.
    """
    if stage in ("measure", "tally", "slope", "evidence"):
        return 2.0 ** math.ceil(math.log2(rows))
    return 2.0**-12 if noisy(config.privacy) else 1.0


def finest_of(stage: str, rows: int, config: Config) -> float:
    """The step of the numbers in a masked sum, before they are divided; 0 where there is none."""
    masked = hides_sums(config) and config.privacy.secure_sum
    return weight_of(stage, rows, config) * 2.0**-BITS if masked else 0.0


def marked(arrays: Arrays) -> Arrays:
    """Arrays of the sum, named so that they can travel beside those of the stage."""
    return {MARK + name: array for name, array in arrays.items()}


def for_sum(arrays: Arrays) -> Arrays:
    """The arrays of an envelope that belong to the sum."""
    return {name.removeprefix(MARK): a for name, a in arrays.items() if name.startswith(MARK)}


def for_stage(arrays: Arrays) -> Arrays:
    """The arrays of an envelope that belong to the stage."""
    return {name: array for name, array in arrays.items() if not name.startswith(MARK)}
