"""Sums over the sites that hold rows: what the server and the sites agree on.

What a sum needs besides the stage's own request and answer (keys, shares, masked vectors) travels
in the same envelopes under names that start with "sum:", or in envelopes of the kind "sum/<phase>".
"""

from __future__ import annotations

from fedssca.rounds.aggregate import Arrays

__all__ = ["SUM", "for_stage", "for_sum", "marked", "weight_of"]

SUM = "sum"
MARK = "sum:"


def weight_of(stage: str, rows: int) -> float:
    """What a hidden answer is divided by before it is masked, and its sum multiplied by.

    Sums over all rows of a site would otherwise leave the range of the fixed-point numbers.
    """
    return float(rows) if stage in ("measure", "tally", "slope") else 1.0


def marked(arrays: Arrays) -> Arrays:
    """Arrays of the sum, named so that they can travel beside those of the stage."""
    return {MARK + name: array for name, array in arrays.items()}


def for_sum(arrays: Arrays) -> Arrays:
    """The arrays of an envelope that belong to the sum."""
    return {name.removeprefix(MARK): a for name, a in arrays.items() if name.startswith(MARK)}


def for_stage(arrays: Arrays) -> Arrays:
    """The arrays of an envelope that belong to the stage."""
    return {name: array for name, array in arrays.items() if not name.startswith(MARK)}
