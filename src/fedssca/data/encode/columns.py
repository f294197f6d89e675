"""How one column of a table becomes columns of x: numbers, categories, booleans and dates.

Each encoding knows its input column, the names of its features, and how to turn cells into columns
of x. A missing number is replaced by `fill`, and if cells were missing in training rows, a further
feature marks them. A missing category is a feature of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from fedssca.data.encode.cells import (
    Array,
    as_text,
    check_finite,
    days,
    is_text,
    missing_cells,
)
from fedssca.data.lines import is_number
from fedssca.errors import UserError

__all__ = [
    "BooleanEncoding",
    "CategoryEncoding",
    "ColumnEncoding",
    "DateEncoding",
    "NumberEncoding",
    "encoding_from_state",
    "standardise",
]


def standardise(x: Array, mean: Any, deviation: Any) -> Array:
    """(x - mean) / deviation as float32; 0 where the deviation is 0."""
    if np.ndim(deviation) == 0:
        there = (x - mean) / deviation if deviation else np.zeros(len(x))
        return there.astype(np.float32)
    constant = deviation == 0
    return np.where(constant, 0.0, (x - mean) / np.where(constant, 1.0, deviation)).astype(
        np.float32
    )


@dataclass(frozen=True)
class ColumnEncoding:
    """What all encodings of a column share."""

    kind: ClassVar[str]
    name: str
    """The column of the table."""

    @property
    def features(self) -> list[str]:
        """The names of the columns of x that this column becomes."""
        raise NotImplementedError

    def encode(self, cells: Array) -> Array:
        """The columns of x (rows, features) of these cells."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """The encoding as plain values, from which `encoding_from_state` makes it again."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class _FilledEncoding(ColumnEncoding):
    """A column that becomes one number, and a mark of missing cells if some were missing."""

    fill: float
    """What a missing cell is replaced by, before it is standardised."""
    indicator: bool
    """Whether a second feature marks the missing cells."""

    @property
    def features(self) -> list[str]:
        return [self.name, *([f"{self.name} missing"] if self.indicator else [])]

    def encode(self, cells: Array) -> Array:
        lacking = missing_cells(cells)
        values = self._numbers(cells, lacking)
        if lacking.any():
            values = np.where(lacking, self.fill, values)
        own = [self._scaled(values).astype(np.float32)]
        return np.stack([*own, lacking.astype(np.float32)] if self.indicator else own, axis=1)

    def _numbers(self, cells: Array, lacking: Array) -> Array:
        raise NotImplementedError

    def _scaled(self, values: Array) -> Array:
        return values


@dataclass(frozen=True)
class NumberEncoding(_FilledEncoding):
    """A number becomes (x - mean) / deviation, and 0 if the deviation is 0."""

    kind = "number"
    mean: float
    deviation: float

    def _numbers(self, cells: Array, lacking: Array) -> Array:
        if is_text(cells) and not lacking.all():
            raise UserError(
                f"column {self.name!r} is text here, such as {_example(cells, ~lacking)}, and "
                "numbers in the training rows; write it alike"
            )
        if is_text(cells):
            return np.zeros(len(cells))
        check_finite(self.name, cells)
        return cells

    def _scaled(self, values: Array) -> Array:
        return standardise(values, self.mean, self.deviation)


@dataclass(frozen=True)
class DateEncoding(_FilledEncoding):
    """A date becomes its number of days since 1970-01-01, standardised like a number."""

    kind = "date"
    mean: float
    deviation: float
    form: str
    """How the dates are written, such as "year-month-day"."""

    def _numbers(self, cells: Array, lacking: Array) -> Array:
        values = days(as_text(cells), self.form)
        wrong = np.isnan(values) & ~lacking
        if wrong.any():
            raise UserError(
                f"column {self.name!r} holds {_example(cells, wrong)}, and dates as {self.form} in "
                "the training rows; write it alike"
            )
        return values

    def _scaled(self, values: Array) -> Array:
        return standardise(values, self.mean, self.deviation)


@dataclass(frozen=True)
class BooleanEncoding(_FilledEncoding):
    """A boolean becomes 0 or 1."""

    kind = "boolean"
    false: str
    true: str
    """The two words in small letters."""

    def _numbers(self, cells: Array, lacking: Array) -> Array:
        words = np.char.lower(as_text(cells))
        words = np.where(words == "0", self.false, np.where(words == "1", self.true, words))
        wrong = ~(lacking | (words == self.false) | (words == self.true))
        if wrong.any():
            raise UserError(
                f"column {self.name!r} holds {_example(cells, wrong)}, and {self.false} or "
                f"{self.true} in the training rows; write it alike"
            )
        return (words == self.true).astype(np.float64)


@dataclass(frozen=True)
class CategoryEncoding(ColumnEncoding):
    """A category becomes one column of zeros and ones for each of its kinds.

    A value that is none of them is 1 in the column for other values if there is one, and else 0 in
    every column.
    """

    kind = "category"
    kinds: tuple[str, ...]
    other: bool
    """Whether there is a column for all values that are none of the kinds."""
    missing: bool
    """Whether there is a column for missing cells."""

    @property
    def features(self) -> list[str]:
        """The names: one for missing cells, one per kind, one for other values."""
        first = [f"{self.name} missing"] if self.missing else []
        last = [f"{self.name} other"] if self.other else []
        return [*first, *(f"{self.name}={kind}" for kind in self.kinds), *last]

    def encode(self, cells: Array) -> Array:
        """Zeros and ones."""
        values = self._values(cells)
        columns = np.array(("", *self.kinds) if self.missing else self.kinds)
        known = values[:, None] == columns
        if self.other:
            known = np.concatenate([known, ~known.any(axis=1, keepdims=True)], axis=1)
        return known.astype(np.float32)

    def unseen(self, cells: Array) -> int:
        """The number of cells that are neither missing nor one of the kinds."""
        values = self._values(cells)
        return int((~np.isin(values, np.array(self.kinds)) & (values != "")).sum())

    def _values(self, cells: Array) -> Array:
        numbers = not is_text(cells) and not missing_cells(cells).all()
        if numbers and not any(is_number(kind) for kind in self.kinds):
            raise UserError(
                f"column {self.name!r} is numbers here, and text such as {self.kinds[0]!r} in the "
                "training rows; write it alike"
            )
        return as_text(cells)


_KINDS: dict[str, type[Any]] = {
    e.kind: e for e in (NumberEncoding, DateEncoding, BooleanEncoding, CategoryEncoding)
}


def encoding_from_state(state: dict[str, Any]) -> ColumnEncoding:
    """The encoding that gave this state."""
    own: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in state.items() if key != "kind"
    }
    made: ColumnEncoding = _KINDS[state["kind"]](**own)
    return made


def _example(cells: Array, where: Array) -> str:
    row = int(np.flatnonzero(where)[0])
    return f"{cells[row].item()!r} in row {row + 1}"
