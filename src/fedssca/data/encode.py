"""THE encoder of tables: named columns of numbers and of text become the float32 matrix x.

A column of numbers becomes (x - mean) / deviation, and 0 if its deviation is 0. A column of text
becomes one column of zeros and ones for each of its kinds, the values that occur in training rows.
The simulator finds kinds and moments from the rows it holds. Sites that hold rows send theirs to
the server, which joins them. Predictions use those of the training rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedssca.errors import UserError

__all__ = [
    "MOST_KINDS",
    "codes",
    "encode",
    "feature_names",
    "is_text",
    "joined_moments",
    "kinds_of",
    "partial_moments",
    "standardise",
]

Array = npt.NDArray[Any]

MOST_KINDS = 50
"""The largest number of different values that a column of text may have."""


def is_text(values: Array) -> bool:
    """Whether a column holds text."""
    return values.dtype.kind == "U"


def kinds_of(values: Array) -> list[str]:
    """The different values of a column of text, sorted."""
    return [str(kind) for kind in np.unique(values)]


def feature_names(columns: Iterable[str], kinds: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of the columns of x, "town=north" for a kind of text."""
    return [
        name
        for column in columns
        for name in ([f"{column}={k}" for k in kinds[column]] if column in kinds else [column])
    ]


def encode(
    columns: Iterable[tuple[str, Array]],
    kinds: Mapping[str, Sequence[str]],
    moments: Mapping[str, Sequence[float]],
) -> Array:
    """The matrix x of these columns; a column of numbers without moments is used as it is."""
    blocks = []
    for name, values in columns:
        if is_text(values) != (name in kinds):
            found, due = ("text", "numbers") if is_text(values) else ("numbers", "text")
            raise UserError(f"column {name!r} is {found} here, and {due} in the training rows")
        if name in kinds:
            blocks.append((values[:, None] == np.array(kinds[name])).astype(np.float32))
        else:
            own = standardise(values, *moments[name]) if name in moments else values
            blocks.append(own[:, None].astype(np.float32))
    return np.concatenate(blocks, axis=1)


def standardise(x: Array, mean: Any, deviation: Any) -> Array:
    """(x - mean) / deviation as float32; 0 where the deviation is 0."""
    if np.ndim(deviation) == 0:
        there = (x - mean) / deviation if deviation else np.zeros(len(x))
        return there.astype(np.float32)
    constant = deviation == 0
    return np.where(constant, 0.0, (x - mean) / np.where(constant, 1.0, deviation)).astype(
        np.float32
    )


def partial_moments(values: Array) -> list[float]:
    """What a site tells of a column of numbers: rows, mean, sum of squared distances from it."""
    exact = values.astype(np.float64)
    mean = float(exact.mean())
    spread = float(np.square(exact - mean).sum())
    return [float(len(exact)), mean, 0.0 if (exact == exact[0]).all() else spread]


def joined_moments(parts: Sequence[Sequence[float]]) -> list[float]:
    """Mean and deviation of all rows, from the partial moments of each site."""
    rows, mean, spread = 0.0, 0.0, 0.0
    for n, m, s in parts:
        both, gap = rows + n, m - mean
        spread += s + gap * gap * rows * n / both
        mean += gap * n / both
        rows = both
    return [mean, float(np.sqrt(spread / rows))]


def codes(values: Array, kinds: Sequence[str] | None) -> Array:
    """A column beside x, for a constraint: float32, or for text the places among its kinds."""
    if kinds is None:
        return values.astype(np.float32)
    return np.searchsorted(np.array(kinds), values).astype(np.int32)
