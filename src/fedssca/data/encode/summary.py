"""What a site tells of a column: counts and sums that add up over sites.

The simulator is one site, and uses the same summaries. Rows do not leave a site. A real site tells
nothing that stands for fewer than `Telling.least` of its rows: rarer values are merged with others,
see `merged` and `grouped_numbers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedssca.data.encode.cells import (
    Array,
    check_finite,
    days,
    fitting_dates,
    is_text,
    missing_cells,
)
from fedssca.errors import UserError

__all__ = [
    "EVERYTHING",
    "FEWEST_IDS",
    "ColumnSummary",
    "EncodingRules",
    "Moments",
    "Telling",
    "joined",
    "merged",
    "summarise",
]

Cell = TypeVar("Cell")
Moments = tuple[float, float, float]
"""The number of values, their mean, and the sum of squared distances from it."""

MOST_VALUES = 200
"""The largest number of different values that are counted as they are.

More numbers than that are rounded to three digits first, and of more texts (or four times the
number of categories) those that occur once are not told.
"""
FEWEST_IDS = 20
"""In tables with fewer rows, different values are no sign of an id."""
FIRST = 1000
"""The number of rows that are looked at first for equal values."""
MOST_TOLD = 1000
"""The largest number of different texts that a site counts for the others."""


@dataclass(frozen=True)
class EncodingRules:
    """What a run chooses about the encoding of its columns."""

    impute: str = "mean"
    """What replaces missing numbers: "mean", "median" or "most_frequent"."""
    most_categories: int = 50
    """The number of categories of a column; rarer ones are joined to one."""


class Telling(NamedTuple):
    """What may be told of a column."""

    least: int = 1
    """The least number of rows behind everything that is told."""
    most_kinds: int | None = None
    """The largest number of different texts that are told; None means any."""


EVERYTHING = Telling()
"""Where all rows are in one place, nothing needs to be merged."""


@dataclass(frozen=True)
class ColumnSummary:
    """Counts and sums of one column."""

    kind: str
    """ "number", "text", or "empty" if all cells are missing."""
    rows: int
    """The number of training rows."""
    missing: int
    """The number of training rows whose cell is missing."""
    moments: Moments | None = None
    """Of a column of numbers."""
    values: dict[float, int] = field(default_factory=dict)
    """How often each number occurs, if missing numbers are imputed by it."""
    rounded: bool = False
    """Whether the numbers in `values` are rounded to three digits."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each text occurs."""
    different: int = 0
    """The number of different texts; those that are not in `counts` included."""
    dates: dict[str, Moments] = field(default_factory=dict)
    """For each form of dates in which all texts are written: the moments of the days."""
    unique: bool = False
    """Whether all cells, those of test rows included, are different and none is missing."""
    powers: tuple[int, int, int] | None = None
    """Of unique whole numbers: how many there are, their sum and the sum of their squares."""

    def state(self) -> dict[str, Any]:
        """The summary as plain values for a message."""
        pairs = {"values": list(self.values.items()), "counts": list(self.counts.items())}
        return asdict(self) | pairs

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ColumnSummary:
        """The summary that gave this state."""
        own: dict[str, Any] = {"values": dict(state["values"]), "counts": dict(state["counts"])}
        own |= {"dates": {form: tuple(part) for form, part in state["dates"].items()}}
        own |= {name: state[name] and tuple(state[name]) for name in ("moments", "powers")}
        return cls(**(state | own))


def summarise(
    name: str,
    cells: Array,
    train: Array | None,
    rules: EncodingRules,
    ids: bool = True,
    alone: bool = False,
    telling: Telling = EVERYTHING,
) -> ColumnSummary:
    """What a site tells of a column; `train` marks its training rows, None means all.

    With `ids` it is also told whether the column looks like an id. A party that `alone` holds a
    column takes kinds and missing cells from its test rows too, because a party without labels
    learns only later which rows those are.
    """
    check_finite(name, cells)
    training = np.ones(len(cells), bool) if train is None else train
    lacking = missing_cells(cells)
    counted = np.ones(len(cells), bool) if alone else training
    there, told = cells[counted & ~lacking], cells[training & ~lacking]
    rows, away = int(counted.sum()), int((counted & lacking).sum())
    if not len(there) or len(there) < telling.least:
        return ColumnSummary("empty", rows, rows)
    if len(told) < telling.least:
        told = there
    unique = ids and not lacking.any() and _all_different(cells)
    if not is_text(cells):
        exact = there.astype(np.float64)
        values, rounded = (
            _counted_numbers(exact, telling) if rules.impute != "mean" else ({}, False)
        )
        moments, few = _moments(name, told), away < telling.least
        if few:  # Missing cells that are too few to be told count as cells that hold the mean.
            moments = (moments[0] + away, *moments[1:])
        return ColumnSummary(
            "number",
            rows,
            0 if few else away,
            moments=moments,
            values=values,
            rounded=rounded,
            unique=unique,
            powers=_powers(cells) if unique else None,
        )
    counts = Counter(there.tolist())
    kinds, away, different = _told_kinds(counts, away, rules, unique, telling)
    forms = fitting_dates(there)
    return ColumnSummary(
        "text",
        rows,
        away,
        counts=kinds,
        different=different,
        dates={form: _moments(name, days(told, form)) for form in forms},
        unique=unique,
    )


def merged(counts: Mapping[Cell, int], telling: Telling) -> tuple[dict[Cell, int], int]:
    """The values that at least `telling.least` rows have, and the number of all other rows.

    That number is 0 or at least `least` too: fewer rows count as rows with the most frequent value,
    because the total is known. Nothing is told if no value is frequent enough.
    """
    often = [kind for kind in counts if counts[kind] >= telling.least]
    often = sorted(often, key=lambda kind: (-counts[kind], str(kind)))[: telling.most_kinds]
    told = {kind: counts[kind] for kind in often}
    others = sum(counts.values()) - sum(told.values())
    if told and others < telling.least:
        told[often[0]] += others
        others = 0
    return told, others


def joined(name: str, parts: Sequence[ColumnSummary]) -> ColumnSummary:
    """The summary of all rows, from those of the sites."""
    full = [part for part in parts if part.kind != "empty"]
    sizes: dict[str, Any] = {
        "rows": sum(p.rows for p in parts),
        "missing": sum(p.missing for p in parts),
    }
    if not full:
        return ColumnSummary("empty", **sizes)
    if len({part.kind for part in full}) > 1:
        raise UserError(f"column {name!r} is text at one site and numbers at another")
    first = full[0]
    counts: Counter[str] = Counter()
    values: Counter[float] = Counter()
    for part in full:
        counts.update(part.counts)
        values.update(part.values)
    rounded = any(part.rounded for part in full) or len(values) > MOST_VALUES
    forms = [form for form in first.dates if all(form in part.dates for part in full)]
    unique = all(part.unique for part in parts) and max(counts.values(), default=1) == 1
    others = any(part.different > len(part.counts) for part in full)
    powers = [part.powers for part in full if part.powers is not None]
    return ColumnSummary(
        first.kind,
        **sizes,
        moments=_joined_moments([p.moments for p in full]),
        values=_rounded(values) if rounded else dict(values),
        rounded=rounded,
        counts=dict(counts),
        different=max(len(counts) + others, *(part.different for part in full)),
        dates={f: _joined_moments([p.dates[f] for p in full]) or (0, 0, 0) for f in forms},
        unique=unique,
        powers=_added_powers(powers) if unique and len(powers) == len(full) else None,
    )


def _all_different(cells: Array) -> bool:
    """Whether no value occurs twice; most columns show one among their first rows."""
    first = cells[:FIRST]
    return len(np.unique(first)) == len(first) and len(np.unique(cells)) == len(cells)


def _moments(name: str, values: Array) -> Moments:
    exact = values.astype(np.float64)
    constant = exact.min() == exact.max()
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(exact.mean())
        spread = 0.0 if constant else float(np.square(exact - mean).sum())
    if not np.isfinite([mean, spread]).all() or (spread == 0 and not constant):
        raise UserError(f"column {name!r} is too large or small; rescale it")
    return float(len(exact)), mean, spread


def _joined_moments(parts: Sequence[Moments | None]) -> Moments | None:
    """Join means and squared distances.

    With n rows, mean m and squared distances s: m = m_1 + (m_2 - m_1) n_2 / (n_1 + n_2), and
    s = s_1 + s_2 + (m_2 - m_1)^2 n_1 n_2 / (n_1 + n_2).
    """
    there = [part for part in parts if part is not None]
    if not there:
        return None
    rows, mean, spread = there[0]
    for n, m, s in there[1:]:
        both, gap = rows + n, m - mean
        spread += s + gap * gap * rows * n / both
        mean += gap * n / both
        rows = both
    return rows, mean, spread


def _counted_numbers(values: Array, telling: Telling) -> tuple[dict[float, int], bool]:
    kinds, counts = np.unique(values, return_counts=True)
    found = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
    found = grouped_numbers(found, telling.least)
    return (_rounded(found), True) if len(found) > MOST_VALUES else (found, False)


def grouped_numbers(counts: Mapping[float, int], least: int) -> dict[float, int]:
    """Counts of sorted numbers in which each number stands for at least `least` rows.

    A number that so many rows have stays. Rarer ones are joined with the next ones, and told as
    their mean; what is left at the end joins the group before it.
    """
    groups: list[tuple[float, int]] = []
    for value, count in counts.items():
        if groups and groups[-1][1] < least:
            before, rows = groups.pop()
            value, count = before + (value - before) * count / (rows + count), rows + count
        groups.append((value, count))
    if len(groups) > 1 and groups[-1][1] < least:
        (one, first), (two, last) = groups[-2:]
        groups[-2:] = [(one + (two - one) * last / (first + last), first + last)]
    return dict(groups)


def _rounded(values: dict[float, int]) -> dict[float, int]:
    """The counts of numbers rounded to three digits."""
    out: Counter[float] = Counter()
    for value, count in values.items():
        out[float(f"{value:.3g}")] += count
    return dict(out)


def _told_kinds(
    counts: Counter[str], away: int, rules: EncodingRules, unique: bool, telling: Telling
) -> tuple[dict[str, int], int, int]:
    """The texts that a site tells, the missing cells that it tells, and how many texts differ."""
    if telling.least == 1:
        often = list(_frequent(counts, rules, unique).items())[: telling.most_kinds]
        return dict(often), away, len(counts)
    told, others = merged(counts + Counter({"": away}), telling)
    away = told.pop("", 0)
    return told, away, len(told) + bool(others)


def _frequent(counts: Counter[str], rules: EncodingRules, unique: bool) -> dict[str, int]:
    """All texts or, if there are very many, the most frequent ones."""
    if unique and len(counts) >= FEWEST_IDS:
        return {}
    if len(counts) <= max(MOST_VALUES, 4 * rules.most_categories):
        return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    often = sorted((k for k, n in counts.items() if n > 1), key=lambda k: (-counts[k], k))
    return {kind: counts[kind] for kind in often[:MOST_TOLD]}


def _powers(values: Array) -> tuple[int, int, int] | None:
    if not np.isfinite(values).all() or not (values == np.rint(values)).all():
        return None
    whole = [int(value) for value in values.tolist()]
    return len(whole), sum(whole), sum(value * value for value in whole)


def _added_powers(parts: Sequence[tuple[int, int, int]]) -> tuple[int, int, int]:
    counts, sums, squares = zip(*parts, strict=True)
    return sum(counts), sum(sums), sum(squares)
