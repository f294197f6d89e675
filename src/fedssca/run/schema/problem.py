"""The section [problem]: the objective and the limits."""

from __future__ import annotations

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from fedssca.problem.constraint_kinds import (
    KINDS,
    POSITIVE,
    SHARPNESS,
    KindName,
    ObjectiveName,
    takes,
)
from fedssca.run.schema.types import MODEL, OneOrMore, Positive, Real, Whole, invalid, key

__all__ = ["ConstraintSettings", "ProblemSettings"]


@dataclass(frozen=True, config=MODEL)
class ConstraintSettings:
    """One limit that the trained model must keep."""

    kind: KindName = Field(
        description="What is limited.", json_schema_extra={"basic": True, "unset": ""}
    )
    limit: Real = Field(
        description="The largest value allowed; for recall and precision the smallest.",
        json_schema_extra={"basic": True, "unset": ""},
    )
    positive: Whole | None = key(
        "The class that a rate is about.", default=None, unset=str(POSITIVE), ge=0
    )
    column: str | None = key("The column whose two values are the groups to compare.", default=None)
    sharpness: Positive | None = key(
        "How steep the smooth stand-in of a 0/1 count is where the predicted class changes.",
        default=None,
        unset=f"{SHARPNESS:g}",
    )

    @model_validator(mode="after")
    def _fits_its_kind(self) -> ConstraintSettings:
        """The limit is one that the kind can have, and the options are those that it takes."""
        kind = KINDS[self.kind]
        if self.limit not in kind.limit:
            words = f"it must be {kind.limit.words('limit')} for the kind {self.kind!r}"
            raise invalid(words, "limit", self.limit)
        for name in ("column", "positive", "sharpness"):
            value = getattr(self, name)
            given = value not in (None, "")
            if given and name not in kind.options:
                words = f"a constraint of kind {self.kind!r} takes {takes(self.kind)}"
                raise invalid(words, name, value)
            if not given and name in kind.needs:
                words = f"a constraint of kind {self.kind!r} needs {name} = <name of a column>"
                raise invalid(words, name)
        return self


@dataclass(frozen=True, config=MODEL)
class ProblemSettings:
    """The objective and the limits."""

    objective: ObjectiveName = key(
        "What is minimised: the mean loss (loss), the largest loss of a client (worst_client) or "
        "of a group of rows (worst_group), each plus l2 |w|^2; or |w|^2 alone (norm).",
        default="loss",
        basic=True,
    )
    column: str | None = key(
        "The column whose values are the groups of the objective worst_group.", default=None
    )
    l2: Real = key("The weight of |w|^2 beside the loss.", default=1e-5, ge=0)
    penalty: OneOrMore = key(
        "The upper bound of the multipliers, c in the paper, for the rules steered and exact. A "
        "list is the continuation c_1 < c_2 < ... The rule corrected bounds them by the lengths "
        "of the gradients.",
        default=1e5,
    )
    constraint: list[ConstraintSettings] = key("The limits, one table for each.", default=[])

    @model_validator(mode="after")
    def _has_its_groups(self) -> ProblemSettings:
        """The objective worst_group has a column, and no other objective does."""
        if self.objective == "worst_group" and not self.column:
            raise invalid("the objective worst_group needs column = <name of a column>", "column")
        if self.objective != "worst_group" and self.column:
            raise invalid("only the objective worst_group takes a column", "column", self.column)
        return self

    @property
    def limited(self) -> bool:
        """There are constraints: those that are stated, or those of an epigraph variable."""
        return bool(self.constraint) or self.per_client or bool(self.column)

    @property
    def columns(self) -> list[str]:
        """The columns beside x and y that the objective and the limits use."""
        named = [self.column, *(entry.column for entry in self.constraint)]
        return list(dict.fromkeys(name for name in named if name))

    @property
    def counts(self) -> bool:
        """Terms depend on how many rows have which label, or are in which group."""
        return bool(self.column) or any(KINDS[entry.kind].counts for entry in self.constraint)

    @property
    def per_client(self) -> bool:
        """Terms are about every single client that holds rows."""
        kinds = [KINDS[entry.kind] for entry in self.constraint]
        return self.objective == "worst_client" or any(kind.per_client for kind in kinds)
