"""The section [problem]: the objective and the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Discriminator, Tag, model_validator
from pydantic.dataclasses import dataclass

from fedssca.problem.constraint_kinds import (
    KINDS,
    ObjectiveName,
    kind_of,
)
from fedssca.problem.task_kinds import (
    HUBER_WIDTH,
    QUANTILE_LEVEL,
    LossName,
    TaskName,
    target_kind,
)
from fedssca.run.schema.constraint import ConstraintSettings, Share
from fedssca.run.schema.types import (
    MODEL,
    ClassWeightTable,
    FunctionName,
    OneOrMore,
    Positive,
    Real,
    invalid,
    key,
    named_or_own,
)

if TYPE_CHECKING:
    from fedssca.data.encode.targets import TargetKind

__all__ = ["ABOUT_LIMITS", "CLIP", "ProblemSettings"]

CLIP = 5.0
ABOUT_LIMITS = ("constraint", "confidence", "certify", "uncertified", "clip")
"""The keys without effect where no limit is stated."""
LossOrOwn: TypeAlias = Annotated[
    Annotated[LossName, Tag("<known>")] | Annotated[FunctionName, Tag("<own>")],
    Discriminator(named_or_own),
]


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
        "In certificates, a loss of a single row above this value counts as this value.",
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
        for name, loss, default in (
            ("huber_width", "huber", HUBER_WIDTH),
            ("quantile", "quantile", QUANTILE_LEVEL),
        ):
            if (given := getattr(self, name)) != default and self.loss != loss:
                raise invalid(
                    f'only loss = "{loss}" uses it: set it, or leave {name} out', name, given
                )
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
