"""The section [problem]: the objective and the limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from fedssca.problem.constraint_kinds import KINDS, POSITIVE, SHARPNESS, KindName, takes
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

    objective: Literal["loss", "norm"] = key(
        "What is minimised: the mean loss plus l2 |w|^2 (loss), or |w|^2 alone (norm).",
        default="loss",
        basic=True,
    )
    l2: Real = key("The weight of |w|^2 beside the loss.", default=1e-5, ge=0)
    penalty: OneOrMore = key(
        "The upper bound of the multipliers, c in the paper. A list is the continuation "
        "c_1 < c_2 < ...",
        default=1e5,
    )
    constraint: list[ConstraintSettings] = key("The limits, one table for each.", default=[])
