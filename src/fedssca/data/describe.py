"""What a run will do with each column of a table, and what looks wrong, before anything trains."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedssca.data.encode import (
    BooleanEncoding,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    EncodingRules,
    NumberEncoding,
    is_text,
    missing_cells,
)
from fedssca.data.encode.cells import Array, days
from fedssca.data.encode.label_sets import has_label
from fedssca.data.encode.labels import LabelName
from fedssca.data.encode.targets import NAMED
from fedssca.data.raw import RawData

__all__ = ["ColumnDescription", "TableDescription", "describe"]

EMPTY = "it is empty in all training rows, and a run would refuse it: set data.drop"
MOSTLY = 0.5
"""A column is mostly missing if more than this share of its cells is."""
FEW = 50
"""A column of numbers with at most so many different values may be a code for the label."""
MOST_CODES = 8
"""Columns of numbers with more different values are hardly codes for categories."""
SHOWN = 3
"""The number of values of a text column that are shown."""


@dataclass(frozen=True)
class ColumnDescription:
    """One column of the table."""

    name: str
    kind: str
    """ "number", "category", "boolean", "date", or "left out"."""
    missing: int
    """The number of rows whose cell is missing."""
    values: str
    """The range or the most frequent values."""
    becomes: str
    """What becomes of it in x."""
    features: tuple[str, ...]
    """The names of its columns of x."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class TableDescription:
    """All columns of a table, its rows and its label."""

    name: str
    rows: int
    test_rows: int
    label: LabelName
    classes: dict[str, int]
    """The number of rows of each class, or with each label; empty if the label is a number."""
    clients: list[int] | None
    """The number of training rows of each file, if every client has its own."""
    columns: tuple[ColumnDescription, ...]
    notes: tuple[str, ...]
    target: str = ""
    """What becomes of a label of numbers; empty if it is a class."""

    @property
    def features(self) -> int:
        """The number of columns of x."""
        return sum(len(column.features) for column in self.columns)

    def state(self) -> dict[str, Any]:
        """The description as plain values."""
        return asdict(self) | {"features": self.features}


def describe(raw: RawData, rules: EncodingRules) -> TableDescription:
    """Describe the columns of a table as a run with these rules encodes them."""
    empty = [name for name, cells in raw.table.items() if missing_cells(cells[raw.train]).all()]
    filled = {name: cells for name, cells in raw.table.items() if name not in empty}
    encoder = replace(raw, table=filled).encoder(rules)
    left_out = encoder.left_out | dict.fromkeys(empty, EMPTY)
    encodings = {column.name: column for column in encoder.columns}
    numbers = raw.kind not in NAMED
    return TableDescription(
        name=raw.name,
        rows=len(raw.y),
        test_rows=int((~raw.train).sum()),
        label=raw.label,
        classes={} if numbers else _counts(raw),
        clients=None if raw.owners is None else np.bincount(raw.owners[raw.train]).tolist(),
        columns=tuple(
            _column(raw, name, encodings.get(name), left_out.get(name, "")) for name in raw.table
        ),
        notes=raw.notes,
        target=_target(raw) if numbers else "",
    )


def _counts(raw: RawData) -> dict[str, int]:
    """The number of rows of each class, or with each label."""
    several = isinstance(raw.label, tuple)
    own = [has_label(raw.y, k) if several else raw.y == k for k in range(len(raw.labels))]
    return {str(name): int(rows.sum()) for name, rows in zip(raw.labels, own, strict=True)}


def _target(raw: RawData) -> str:
    unit = raw.target()
    assert unit is not None
    how = f"mean {unit.shift:.4g}, deviation" if unit.shift else "divided by the mean"
    return f"{_values(raw.y)}; trained in its own unit: {how} {unit.scale:.4g}"


def _column(
    raw: RawData, name: str, encoding: ColumnEncoding | None, why: str
) -> ColumnDescription:
    cells = raw.table[name]
    lacking = missing_cells(cells)
    return ColumnDescription(
        name=name,
        kind="left out" if encoding is None else encoding.kind,
        missing=int(lacking.sum()),
        values=_values(cells[~lacking]),
        becomes=why if encoding is None else _becomes(encoding),
        features=() if encoding is None else tuple(encoding.features),
        warnings=tuple(_warnings(raw, cells, lacking, encoding)) if encoding else (why,),
    )


def _values(there: Array) -> str:
    kinds, counts = np.unique(there, return_counts=True)
    if not len(kinds):
        return "none"
    if not is_text(there):
        ends = f"{kinds[0]:g} to {kinds[-1]:g}" if len(kinds) > 1 else f"{kinds[0]:g}"
        return f"{ends}, {len(kinds)} different" if len(kinds) > 2 else ends
    often = np.argsort(-counts, kind="stable")[:SHOWN]
    shown = ", ".join(f"{kinds[i]} {counts[i] / len(there):.0%}" for i in often)
    return f"{shown}, {len(kinds)} different" if len(kinds) > SHOWN else shown


def _becomes(encoding: ColumnEncoding) -> str:
    marked = len([name for name in encoding.features if name == f"{encoding.name} missing"])
    if isinstance(encoding, CategoryEncoding):
        ends = [word for word, there in (("other", encoding.other), ("missing", marked)) if there]
        return ", ".join([f"{len(encoding.kinds)} categories", *ends])
    mark = f", missing as {encoding.fill:.4g} and marked" if marked else ""  # type: ignore[attr-defined]
    if isinstance(encoding, BooleanEncoding):
        return f"0 {encoding.false}, 1 {encoding.true}{mark}"
    if isinstance(encoding, DateEncoding):
        return f"days since 1970, standardised (written as {encoding.form}){mark}"
    assert isinstance(encoding, NumberEncoding)
    return f"standardised: mean {encoding.mean:.4g}, deviation {encoding.deviation:.4g}{mark}"


def _warnings(raw: RawData, cells: Array, lacking: Array, encoding: ColumnEncoding) -> list[str]:
    """What looks wrong about a column, each as a short line."""
    found = []
    share = lacking.mean()
    if share > MOSTLY:
        found.append(f"mostly missing: {share:.0%} of the cells")
    if len(np.unique(cells[~lacking])) == 1:
        found.append("constant: all its cells are the same")
    elif leak := _leak(raw, cells, lacking, encoding):
        found.append(leak)
    if lacking.any() and len(raw.labels) > 1 and _pure(lacking, raw.y):
        found.append("leak: whether it is missing tells the label")
    if raw.owners is not None:
        files = np.unique(raw.owners[raw.train])
        empty = [i for i in files if lacking[raw.owners == i].all()]
        if empty and len(empty) < raw.owners.max() + 1:
            found.append("empty in file " + ", ".join(str(i + 1) for i in empty))
    found += _groups_told(raw, encoding.name, cells)
    if isinstance(encoding, NumberEncoding) and _codes(cells[~lacking]):
        found.append("few whole numbers: if they are codes, list it in data.categories")
    if isinstance(encoding, CategoryEncoding):
        other = encoding.unseen(cells[raw.train])
        if other:
            found.append(f"{other} training rows have rarer values, which are joined")
        unseen = encoding.unseen(cells[~raw.train])
        if unseen and not encoding.other:
            found.append(f"{unseen} test rows have values that no training row has")
    return found


def _groups_told(raw: RawData, name: str, cells: Array) -> list[str]:
    """A line about each division into groups, or files, that the column shows or that shows it."""
    divisions = {f"group of {g!r}": raw.table[g] for g in raw.keep if g != name}
    if raw.owners is not None:
        divisions["file"] = raw.owners
    kinds, own = np.unique(cells, return_inverse=True)
    found = []
    for what, values in divisions.items():
        groups, places = np.unique(values, return_inverse=True)
        if not 1 < len(groups) <= FEW or not 1 < len(kinds) <= FEW:
            continue
        if _pure(places, own):
            found.append(f"one value per {what}: it stands for the {what.split()[0]}")
        elif _pure(own, places):
            found.append(f"it tells the {what} without an error")
    return found


def _codes(there: Array) -> bool:
    """Whether these are few different whole numbers, which may be codes for categories."""
    kinds = np.unique(there)
    return 2 < len(kinds) <= MOST_CODES < len(there) / 4 and bool((kinds == np.rint(kinds)).all())


def _leak(raw: RawData, cells: Array, lacking: Array, encoding: ColumnEncoding) -> str:
    """A line about a column that tells the label by itself; empty if it does not."""
    there, y = cells[~lacking], raw.y[~lacking]
    if raw.kind != "class" or len(np.unique(y)) < 2:
        return ""
    kinds, places = np.unique(there, return_inverse=True)
    if len(kinds) <= min(FEW, len(there) // 4) and _pure(places, y):
        if len(kinds) == len(np.unique(y)):
            return "leak: every class has one value of its own, is it the label?"
        return "leak: it tells the label without an error, is it known before the label?"
    numbers = days(there, encoding.form) if isinstance(encoding, DateEncoding) else there
    if len(raw.labels) == 2 and not is_text(numbers):
        low, high = (numbers[y == label] for label in (0, 1))
        if low.max() < high.min() or high.max() < low.min():
            return "leak: a threshold tells the label without an error"
    return ""


def _pure(places: Array, y: Array) -> bool:
    """Whether all rows with the same value have the same label."""
    pairs = np.unique(np.stack([places.astype(np.int64), y.astype(np.int64)]), axis=1)
    return len(np.unique(pairs[0])) == pairs.shape[1]
