"""Cells of a column: numbers (NaN if missing) or text ("" if missing), and what text can mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from fedssca.errors import UserError

__all__ = [
    "DATES",
    "Array",
    "as_text",
    "boolean_pair",
    "check_finite",
    "codes",
    "days",
    "fitting_dates",
    "is_text",
    "kinds_of",
    "missing_cells",
    "named_cells",
    "stacked",
]

Array = npt.NDArray[Any]

MISSING = "missing"
"""The kind of a missing cell, where a column of text stands beside x."""

PAIRS = (("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"))
"""Text that means 0 and 1, in small letters."""

_TIME = r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?Z?)?"
DATES: dict[str, tuple[re.Pattern[str], tuple[int, int, int]]] = {
    "year-month-day": (re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})" + _TIME), (0, 1, 2)),
    "day.month.year": (re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})" + _TIME), (2, 1, 0)),
    "day/month/year": (re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})" + _TIME), (2, 1, 0)),
    "month/day/year": (re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})" + _TIME), (2, 0, 1)),
}
"""How dates are written: a pattern, and the places of year, month and day among its groups."""
_EPOCH = datetime(1970, 1, 1)


def is_text(values: Array) -> bool:
    """Whether a column holds text."""
    return values.dtype.kind == "U"


def missing_cells(values: Array) -> Array:
    """Mark the cells of a column that are missing."""
    if is_text(values):
        return values == ""
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)


def check_finite(name: str, values: Array, where: str = "") -> None:
    """Refuse a column of numbers with an infinite one, and say in which row (of `where`) it is."""
    if values.dtype.kind == "f" and np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        column = f"{where}: column {name!r}" if where else f"column {name!r}"
        raise UserError(f"{column} holds {values[row]} in row {row + 1}; mend that row")


def as_text(values: Array) -> Array:
    """A column of numbers as text: whole numbers without a decimal point, "" if missing."""
    if is_text(values):
        return values
    return np.array(
        [
            "" if v != v else str(int(v)) if float(v).is_integer() else str(v)
            for v in values.tolist()
        ],
        dtype=str,
    )


def stacked(parts: Sequence[Array]) -> Array | None:
    """Columns below each other, as text or as numbers; None if some are text and some numbers.

    A column whose cells are all missing fits both.
    """
    kinds = {is_text(part) for part in parts if not missing_cells(part).all()}
    if len(kinds) > 1:
        return None
    text = kinds.pop() if kinds else is_text(parts[0])
    blank: Any = "" if text else np.nan
    fitting = [p if is_text(p) == text else np.full(len(p), blank) for p in parts]
    return np.concatenate(fitting)


def named_cells(values: Array) -> Array:
    """A column of text that stands beside x, with a name for its missing cells."""
    return np.where(values == "", MISSING, values) if (values == "").any() else values


def kinds_of(values: Array) -> list[str]:
    """The different values of a column of text, sorted."""
    return [str(kind) for kind in np.unique(values)]


def codes(values: Array, kinds: Sequence[str] | None) -> Array:
    """A column beside x, for a constraint: float32, or for text the places among its kinds."""
    if kinds is None:
        return values.astype(np.float32)
    return np.searchsorted(np.array(kinds), values).astype(np.int32)


def boolean_pair(kinds: Sequence[str]) -> tuple[str, str] | None:
    """The two words that these values are, such as ("no", "yes"); None if they are others."""
    words = {kind.lower() for kind in kinds}
    return next((pair for pair in PAIRS if words == set(pair)), None)


def days(values: Array, form: str) -> Array:
    """Dates of this form as days since 1970-01-01, NaN for cells that are missing or no date."""
    kinds, places = np.unique(values, return_inverse=True)
    return np.array([_day(str(kind), form) for kind in kinds], np.float64)[places]


def fitting_dates(values: Array) -> list[str]:
    """The forms of dates in which all cells that are not missing are written."""
    kinds = [kind for kind in kinds_of(values) if kind]
    return [form for form in DATES if kinds and all(_day(k, form) == _day(k, form) for k in kinds)]


def _day(text: str, form: str) -> float:
    pattern, (year, month, day) = DATES[form]
    if (found := pattern.fullmatch(text)) is None:
        return float("nan")
    parts = [int(part or 0) for part in found.groups()]
    hour, minute, second = parts[3:]
    try:
        moment = datetime(parts[year], parts[month], parts[day], hour, minute, second)
    except ValueError:
        return float("nan")
    return (moment - _EPOCH).total_seconds() / 86400
