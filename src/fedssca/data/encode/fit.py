"""From the summary of a column to its encoding, or to the reason why it is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from fedssca.data.encode.cells import boolean_pair
from fedssca.data.encode.columns import (
    BooleanEncoding,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    NumberEncoding,
)
from fedssca.data.encode.summary import FEWEST_IDS, ColumnSummary, EncodingRules, Moments
from fedssca.errors import UserError

__all__ = ["fitted", "looks_like_id"]

FEWEST_NUMBERED = 100
"""In tables with fewer rows, consecutive numbers without the name of an id are no sign of one."""
MOST_PERIODS = 20
"""So many different dates of an unclear form can still be periods, which are categories."""
_ID_NAME = re.compile(r"(^|.*[_\-. ])(id|ids|uuid|guid|index)", re.IGNORECASE)
_ID_CASE = re.compile(r".*[a-z](ID|Id)|Unnamed: 0|")


def fitted(name: str, summary: ColumnSummary, rules: EncodingRules) -> ColumnEncoding:
    """The encoding of a column that is used as a feature."""
    if summary.kind == "empty":
        raise UserError(
            f"column {name!r} is empty in all {summary.rows} rows; leave it out (data.drop, or "
            "ignore in site.toml)"
        )
    indicator = summary.missing > 0
    if summary.kind == "number":
        assert summary.moments is not None
        mean, deviation = _scale(summary.moments)
        return NumberEncoding(name, _fill(summary, rules, mean), indicator, mean, deviation)
    pair = boolean_pair(list(summary.counts)) if len(summary.counts) == summary.different else None
    if pair is not None:
        return BooleanEncoding(name, _share(summary, pair[1], rules), indicator, *pair)
    if len(summary.dates) == 1:
        ((form, moments),) = summary.dates.items()
        mean, deviation = _scale(moments)
        return DateEncoding(name, mean, indicator, mean, deviation, form)
    if summary.dates and summary.different > MOST_PERIODS:
        raise UserError(
            f"column {name!r} holds dates that can be {' or '.join(summary.dates)}: write them as "
            "year-month-day, or leave it out (data.drop, or ignore in site.toml)"
        )
    often = sorted(summary.counts, key=lambda kind: (-summary.counts[kind], kind))
    kinds = tuple(sorted(often[: rules.most_categories]))
    return CategoryEncoding(name, kinds, summary.different > len(kinds), indicator)


def looks_like_id(name: str, summary: ColumnSummary) -> bool:
    """Whether a column names the rows instead of describing them.

    Its values are all different, and they are text or whole numbers. Whole numbers must be called
    an id, or be consecutive from 0 or 1 on. Of all sets of n different whole numbers with the same
    sum, consecutive ones have the smallest sum of squares, and no other set has it. So both sums
    tell whether they are consecutive, and nobody needs the smallest and the largest.
    """
    if not summary.unique or summary.dates:
        return False
    if summary.kind == "text":
        return summary.rows >= FEWEST_IDS
    if summary.powers is None or summary.powers[0] < FEWEST_IDS:
        return False
    named = _ID_NAME.fullmatch(name) or _ID_CASE.fullmatch(name)
    return bool(named) or _consecutive(*summary.powers)


def _consecutive(count: int, total: int, squares: int) -> bool:
    """Whether different whole numbers with these sums are 0, ..., n - 1 or 1, ..., n."""
    if count < FEWEST_NUMBERED:
        return False
    ends = (count - 1, count)
    return (total, squares) in [(k * (k + 1) // 2, k * (k + 1) * (2 * k + 1) // 6) for k in ends]


def _scale(moments: Moments) -> tuple[float, float]:
    rows, mean, spread = moments
    return mean, float(np.sqrt(spread / rows))


def _fill(summary: ColumnSummary, rules: EncodingRules, mean: float) -> float:
    """What replaces a missing number."""
    if rules.impute == "mean":
        return mean
    values = dict(sorted(summary.values.items()))
    if rules.impute == "most_frequent":
        return max(values, key=lambda value: (values[value], -value))
    return _median(values)


def _median(values: Mapping[float, int]) -> float:
    """The median of sorted values that occur so often."""
    ends = np.cumsum(list(values.values()))
    kinds, total = list(values), int(ends[-1])
    low, high = (
        kinds[int(np.searchsorted(ends, k, "right"))] for k in ((total - 1) // 2, total // 2)
    )
    return (low + high) / 2


def _share(summary: ColumnSummary, true: str, rules: EncodingRules) -> float:
    """What replaces a missing boolean: the share of true ones, or what is more frequent."""
    yes = sum(n for kind, n in summary.counts.items() if kind.lower() == true)
    share = yes / sum(summary.counts.values())
    return share if rules.impute == "mean" else float(share > 0.5)
