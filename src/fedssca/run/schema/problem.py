"""The section [problem]: the objective and the limits."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic.dataclasses import dataclass

from fedssca.problem.constraint_kinds import (
    KINDS,
    LEAST_ROWS,
    SHARPNESS,
    CompareName,
    KindName,
    ObjectiveName,
    RareName,
    kind_of,
    takes,
)
from fedssca.problem.task_kinds import (
    HUBER_WIDTH,
    QUANTILE_LEVEL,
    LossName,
    TaskName,
    target_kind,
)
from fedssca.run.schema.types import (
    MODEL,
    Bins,
    ClassName,
    ClassWeightTable,
    Flag,
    FunctionName,
    OneOrMore,
    Positive,
    Real,
    Whole,
    invalid,
    key,
    named_or_own,
)

if TYPE_CHECKING:
    from fedssca.data.encode.targets import TargetKind

__all__ = ["CLIP", "ConstraintSettings", "ProblemSettings"]

CLIP = 5.0
Share = Annotated[Real, Field(gt=0, lt=1)]
LossOrOwn: TypeAlias = Annotated[
    Annotated[LossName, Tag("<known>")] | Annotated[FunctionName, Tag("<own>")],
    Discriminator(named_or_own),
]
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


@dataclass(frozen=True, config=MODEL)
class ProblemSettings:
    """The objective and the limits."""

    task: TaskName = key(
        "What the label is: one of several classes (classification), several labels of which a row "
        "has any number (multilabel, with a list as data.label), or a number (regression).",
        default="classification",
        basic=True,
    )
    loss: LossOrOwn | None = key(
        "The loss of a regression: squared, huber (linear for large errors), quantile, or poisson "
        "for counts. A classification has the cross-entropy, a multilabel classification the mean "
        "of the binary cross-entropies of the labels. All take a function of yours in an installed "
        "package, package.module:function.",
        title="Loss of a regression",
        default=None,
        unset="squared, or the cross-entropy of a classification",
    )
    huber_width: Positive = key(
        "The error, in standard deviations of the target, from which on the loss huber is linear.",
        title="Width of the Huber loss",
        default=HUBER_WIDTH,
    )
    quantile: Share = key(
        "The quantile of the target that the loss quantile predicts.", default=QUANTILE_LEVEL
    )
    class_weights: ClassWeightTable | None = key(
        'The weights of the classes in the objective: "balanced" for N / (L N_l), with N_l of the '
        "N training rows in class l of L, or a table such as {sick = 5}; others weigh 1. Limits "
        "and metrics count every row once.",
        default=None,
        unset="all weigh 1",
    )
    objective: ObjectiveName = key(
        "What is minimised: the mean loss (loss), the largest loss of a client (worst_client) or "
        "of a group of rows (worst_group), each plus l2 |w|^2; or |w|^2 alone (norm).",
        title="What is minimised",
        default="loss",
        basic=True,
    )
    column: str | None = key(
        "The column whose values are the groups of the objective worst_group.",
        title="Group column of the objective",
        default=None,
    )
    l2: Real | None = key(
        "The weight of |w|^2 beside the loss.",
        title="Weight of |w|²",
        default=None,
        unset="1e-5; for N rows of a table 1 / (2 N) with linear and 2 / N with mlp, if that is "
        "more",
        ge=0,
    )
    penalty: OneOrMore = key(
        "The upper bound of the multipliers, c in the paper, for the rules steered and exact. A "
        "list is the continuation c_1 < c_2 < ... The rule corrected bounds them by the lengths "
        "of the gradients.",
        title="Upper bound of multipliers",
        default=1e5,
    )
    confidence: Share | None = key(
        "All limits are certified for new rows: the whole statement is true with this probability, "
        "such as 0.95.",
        title="Confidence for new rows",
        basic=True,
        default=None,
        unset="nothing is certified",
    )
    certify: Literal["pooled", "each_site"] = key(
        "What is certified: limits on the new rows of all clients together (pooled), or on those "
        "of every single client (each_site).",
        title="What is certified",
        default="pooled",
    )
    uncertified: Literal["continue", "stop"] = key(
        "What happens if there are too few calibration rows to certify any model: the run goes on "
        "without a certificate and says so (continue), or it is an error before training (stop).",
        title="If nothing can be certified",
        default="continue",
    )
    clip: Positive = key(
        "In certificates, losses of single rows above this count as this much.",
        title="Largest loss of a row in certificates",
        default=CLIP,
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

    @model_validator(mode="after")
    def _fits_its_task(self) -> ProblemSettings:
        """The loss and the kinds of limits are those of the task, and can be certified if asked."""
        own = self.loss is not None and ":" in self.loss
        if self.task != "regression" and self.loss is not None and not own:
            words = (
                f'only task = "regression" takes it; a {self.task} has the cross-entropy, or a '
                "function of yours, package.module:function"
            )
            raise invalid(words, "loss", self.loss)
        if self.class_weights is not None and self.task != "classification":
            words = f"a {self.task} has no classes to weigh; weigh rows with data.weight"
            raise invalid(words, "class_weights")
        if self.class_weights is not None and self.objective != "loss":
            words = f'the objective {self.objective!r} takes no weights; use "loss"'
            raise invalid(words, "class_weights")
        for entry in self.constraint:
            kind = kind_of(entry.kind)
            if self.task not in kind.tasks:
                known = ", ".join(name for name, each in KINDS.items() if self.task in each.tasks)
                words = f"a {self.task} has no constraint of kind {entry.kind!r}; it takes {known}"
                raise invalid(words, "constraint")
            sure = entry.confidence or self.confidence
            if sure and own and "loss" in entry.kind:
                words = (
                    f"a limit of kind {entry.kind!r} cannot be certified with a loss of yours, "
                    "whose values may have no bound; use a kind that counts rows, or leave "
                    "confidence out"
                )
                raise invalid(words, "constraint")
            if sure and not kind.certifiable:
                words = (
                    f"a limit of kind {entry.kind!r} cannot be certified, because it is about a "
                    "mean of errors, whose sign or size has no bound; use a kind that counts rows, "
                    "or leave confidence out"
                )
                raise invalid(words, "constraint")
        return self

    @property
    def target(self) -> TargetKind:
        """What the label column holds."""
        return target_kind(self.task, self.loss or "squared")

    @property
    def certified(self) -> bool:
        """Some limit is to be certified."""
        asked = [entry.confidence or self.confidence for entry in self.constraint]
        return any(each is not None for each in asked)

    @property
    def limited(self) -> bool:
        """There are constraints: those that are stated, or those of an epigraph variable."""
        return bool(self.constraint) or self.per_client or bool(self.column)

    @property
    def columns(self) -> list[str]:
        """The columns beside x and y that the objective and the limits use."""
        named = [self.column, *(name for entry in self.constraint for name in entry.grouped)]
        return list(dict.fromkeys(name for name in named if name))

    @property
    def bins(self) -> dict[str, list[float]]:
        """For each column that is used in bins only: the ends of all bins of all limits."""
        whole = {self.column} | {
            name for e in self.constraint for name in e.grouped if name not in e.edges
        }
        ends: dict[str, set[float]] = {}
        for entry in self.constraint:
            for name, own in entry.edges.items():
                ends.setdefault(name, set()).update(own)
        return {name: sorted(found) for name, found in ends.items() if name not in whole}

    @property
    def counts(self) -> bool:
        """Terms depend on how many rows have which label, or are in which group."""
        balanced = self.class_weights == "balanced"
        return balanced or bool(self.column) or any(entry.counts for entry in self.constraint)

    @property
    def per_client(self) -> bool:
        """Terms are about every single client that holds rows."""
        return self.objective == "worst_client" or any(
            entry.per_client or kind_of(entry.kind).per_client for entry in self.constraint
        )

    @property
    def counts_per_client(self) -> bool:
        """Terms depend on how many rows of every single client have which label or group."""
        return any(entry.per_client and entry.counts for entry in self.constraint)
