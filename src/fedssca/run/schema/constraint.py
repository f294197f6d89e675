"""The tables [[problem.constraint]]: one limit each."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic.dataclasses import dataclass

from fedssca.problem.constraint_kinds import (
    LEAST_ROWS,
    SHARPNESS,
    CompareName,
    KindName,
    RareName,
    kind_of,
    takes,
)
from fedssca.run.schema.types import (
    MODEL,
    Bins,
    ClassName,
    Flag,
    FunctionName,
    Positive,
    Real,
    Whole,
    invalid,
    key,
    named_or_own,
)

__all__ = ["ConstraintSettings", "Share"]

Share = Annotated[Real, Field(gt=0, lt=1)]
KindOrOwn: TypeAlias = Annotated[
    Annotated[KindName, Tag("<known>")] | Annotated[FunctionName, Tag("<own>")],
    Discriminator(named_or_own),
]


@dataclass(frozen=True, config=MODEL)
class ConstraintSettings:
    """One limit that the trained model must keep."""

    kind: KindOrOwn = key(
        "What is limited, or a function of yours that makes the constraint, "
        "package.module:function.",
        title="What is limited",
        default=...,
        basic=True,
    )
    limit: Real = key(
        "The largest value allowed; for recall and precision the smallest.", default=..., basic=True
    )
    positive: ClassName | None = key(
        "The class that a rate is about, as it stands in the data; of several labels the name of "
        "one. It can be left out where the classes are 0 and 1, or where the data set has one of "
        "its own. The kind error counts all errors without it.",
        title="Class that the rate is about",
        default=None,
        unset="1 where the classes are 0 and 1",
    )
    column: str | None = key(
        "The column whose values are the groups that are limited or compared.",
        title="Group column",
        default=None,
    )
    columns: list[str] = key(
        "Several columns; the groups are the intersections of their values.",
        title="Several group columns",
        default=[],
    )
    bins: Bins | None = key(
        "The numbers that divide a column of numbers into groups: [25, 40] makes below 25, 25 to "
        "below 40, and from 40 on. With columns: a table, {AGE = [25, 40]}.",
        title="Bounds of groups of numbers",
        default=None,
    )
    compare: CompareName | None = key(
        "Which groups are compared: each with all rows (all), or every two (pairs).",
        default=None,
        unset="pairs for two groups, all for more",
    )
    least_rows: Whole | None = key(
        "Groups with fewer training rows, of the class that a rate is about, are rare.",
        title="Fewest rows per group",
        default=None,
        unset=f"{LEAST_ROWS}, but 1 for two groups of all clients",
        ge=1,
    )
    rare: RareName | None = key(
        "What becomes of rare groups: they are one group together (merge), or an error (refuse).",
        default=None,
        unset="merge",
    )
    per_client: Flag = key(
        "The limit holds for the rows of every single client, instead of all rows.",
        title="For every client separately",
        default=False,
    )
    confidence: Share | None = key(
        "The limit is certified for new rows: the statement is true with this probability. "
        "Without it problem.confidence counts.",
        default=None,
        unset="problem.confidence",
    )
    sharpness: Positive | None = key(
        "How steep the smooth stand-in of a 0/1 count is where the predicted class changes.",
        default=None,
        unset=f"{SHARPNESS:g}",
    )
    bound: Positive | None = key(
        "The size of an error, in the unit of the target, from which on the kind beyond counts it.",
        title="Size of an error that counts",
        default=None,
    )

    arguments: dict[str, Any] | None = key(
        "What your own function takes beside the limit.",
        title="Options of your function",
        default=None,
    )

    @property
    def options(self) -> dict[str, Any]:
        """The keys beside kind and limit that are given."""
        given = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {
            name: value
            for name, value in given.items()
            if name not in ("kind", "limit", "confidence") and _is_given(value)
        }

    @property
    def grouped(self) -> list[str]:
        """The columns that divide the rows into groups."""
        return [self.column] if self.column else list(self.columns)

    @property
    def counts(self) -> bool:
        """Its terms depend on how many rows have which label, or are in which group."""
        return kind_of(self.kind).labels or bool(self.grouped)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> ConstraintSettings:
        """The limit is one that the kind can have, and the options are those that it takes."""
        kind = kind_of(self.kind)
        if self.limit not in kind.limit:
            words = f"it must be {kind.limit.words('limit')} for the kind {self.kind!r}"
            raise invalid(words, "limit", self.limit)
        for name, value in self.options.items():
            if name not in kind.options:
                words = f"a constraint of kind {self.kind!r} takes {takes(self.kind)}"
                raise invalid(words, name, value)
        if kind.gap and not self.grouped:
            words = f"a constraint of kind {self.kind!r} needs column = <name of a column>"
            raise invalid(words, "column")
        if self.column and self.columns:
            raise invalid("give column or columns, not both", "columns", self.columns)
        if "bound" in kind.options and self.bound is None:
            words = f"a constraint of kind {self.kind!r} needs bound = <size of an error>"
            raise invalid(words, "bound")
        return self

    @model_validator(mode="after")
    def _has_increasing_bins(self) -> ConstraintSettings:
        """Bins belong to a column, and their numbers increase."""
        if self.bins is None:
            return self
        table = self.bins if isinstance(self.bins, dict) else None
        if not self.grouped or (table is None and len(self.grouped) > 1):
            words = "bins need column = <name>, or with columns a table such as {AGE = [25, 40]}"
            raise invalid(words, "bins", self.bins)
        for name in table or {}:
            if name not in self.grouped:
                raise invalid(f"{name!r} is not one of the columns", "bins", self.bins)
        for ends in self.edges.values():
            if any(low >= high for low, high in pairwise(ends)):
                raise invalid("the numbers must increase", "bins", self.bins)
        return self

    @property
    def edges(self) -> dict[str, list[float]]:
        """The bins by column."""
        if self.bins is None:
            return {}
        return dict(self.bins) if isinstance(self.bins, dict) else {self.grouped[0]: self.bins}


def _is_given(value: Any) -> bool:
    return value is not None and value != [] and value != "" and value is not False
