"""Quantities that can be limited over all rows or over a group: rates, errors and losses.

The derivative of a 0/1 count is zero, so the terms are "straight through": their value is the true
count, their gradient that of a smooth stand-in. Gaps and precision use sigmoid(sharpness * margin),

    margin = score_positive - logsumexp(the other scores),

which for sharpness 1 is the softmax; the margin of one of several labels is its score
(`problem/decisions.py`). Error rates use log(1 + log(1 + exp(.))) / log(1 + log 2) of
the same argument, which is above the count everywhere. For rows that are far on the wrong side its
slope falls as 1 / margin. A sigmoid has no slope there, so a model that is wrong everywhere would
not learn; log(1 + exp(.)) has its full slope there, so training would be spent on rows that no
model gets right.

The values that move the multipliers and decide on feasibility are therefore true rates. A rate over
a subset S of the N training rows is a mean over all rows, (1/N) sum_n (N/N_S) 1[n in S] f(n). The
factor N/N_S is computed once, so the mean adds up over clients of any size, including clients
without rows in S. On held-out data the rate is reported with the counts of that data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.problem.constraint_kinds import KindName
from fedssca.problem.constraints.base import (
    Once,
    Rates,
    ScoreTerm,
    Shared,
    straight_through,
)
from fedssca.problem.constraints.cells import Mask
from fedssca.problem.constraints.groups import Group
from fedssca.problem.problem import Array, Rate

__all__ = [
    "Over",
    "Quantity",
    "above_count",
    "check_place",
    "check_sharpness",
    "mistake",
    "predicted",
]

RowMask: TypeAlias = Callable[[Once], Any]
"""The rows of a batch -> which of them are meant."""
Over: TypeAlias = Callable[[Group], tuple[ScoreTerm, Rates]]
"""A group -> a quantity over its rows: as the mean of a term over all rows, and as reported."""


class Quantity(NamedTuple):
    """The mean of `value` over the rows that `mask` marks; a constraint limits it in any group."""

    kind: KindName
    name: str
    """The beginning of the names of its constraints, such as "fnr"."""
    words: str
    """The quantity in words, such as "fnr of 'sick'"."""
    key: str
    """What tells its means from those of other quantities."""
    valued: str
    """What tells its values from those of other quantities."""
    value: ScoreTerm
    mask: RowMask | None
    """batch -> the rows that it is about, such as those of class 'sick'; None: all."""
    base: np.ndarray
    """The same for the training rows."""
    among: str = ""
    """These rows in words, such as " of 'sick'"."""
    suffix: str = ""
    """A part of the names of its constraints after the column."""
    stepwise: bool = True
    assumed: bool = False
    """The class that it is about was not named, and the names of the classes were not known."""
    ratio: Over | None = None
    """Takes the place of the mean where the quantity is another ratio."""
    units: int = 0
    """As in `Constraint`."""
    signed: bool = False
    """Its values may be negative, so that they are not those of a loss."""

    @property
    def clipped(self) -> bool:
        """Certificates clip its values, which are those of a loss."""
        return not (self.stepwise or self.units or self.signed)

    def term(self, *groups: Group) -> str:
        """The name of a mean over groups: the same mean in other constraints has the same."""
        keys = [group.key for group in groups if group.key]
        return f"{self.key}[{' | '.join(keys)}]" if keys else self.key

    def over(self, group: Group) -> tuple[ScoreTerm, Rates]:
        """The quantity over a group: as the mean of a term over all rows, and as reported."""
        if self.ratio is not None:
            return self.ratio(group)
        inside = _both(group.own, self.mask)
        factor = 1.0 / float(np.mean(self.base & group.rows))

        def term(now: Once) -> Array:
            own = self.of(now, group)
            return own if inside is None else jnp.where(inside(now), factor, 0.0) * own

        def rates(now: Once) -> Sequence[Rate]:
            own = self.of(now, group)
            counted = jnp.ones_like(own)
            if inside is not None:
                counted = jnp.asarray(inside(now)).astype(own.dtype)
            return [(1.0, counted * own, counted)]

        return Shared(term), Shared(rates)

    def of(self, now: Once, group: Group) -> Array:
        """The value of every row, which groups share.

        Gradients are added in another order where values are shared, so limits on all rows do not
        share them: their results do not depend on which other limits there are.
        """
        if group.own is None:
            return now.of(self.value)
        return now.value(self.valued, self.value)

    def apart(self, low: Group, high: Group) -> tuple[ScoreTerm, Rates]:
        """The mean over `high` less the mean over `low`: as a single term, and as reported."""
        means = [(sign, *self.over(group)) for sign, group in ((-1.0, low), (1.0, high))]
        factors = [
            (sign / float(np.mean(self.base & group.rows)), _both(group.own, self.mask))
            for sign, group in ((-1.0, low), (1.0, high))
        ]

        def term(now: Once) -> Array:
            weights = [
                jnp.where(True if own is None else own(now), factor, 0.0) for factor, own in factors
            ]
            return now.of(self.value) * sum(weights)

        def rates(now: Once) -> Sequence[Rate]:
            return [
                (sign * weight, top, bottom)
                for sign, _, reported in means
                for weight, top, bottom in now.of(reported)
            ]

        return Shared(term), Shared(rates)


def _both(group: Mask | None, mask: RowMask | None) -> RowMask | None:
    """The rows that are in a group and that a mask marks."""
    if group is None:
        return mask

    def own(now: Once) -> Any:
        inside = group(now.batch)
        return inside if mask is None else mask(now) & inside

    return own


def above_count(x: Array) -> Array:
    """log(1 + log(1 + exp x)) / log(1 + log 2): at least 1[x >= 0] everywhere."""
    return jnp.log1p(jax.nn.softplus(x)) / math.log1p(math.log(2))


def predicted(
    kind: str,
    positive: int,
    sharpness: float,
    missed: bool = False,
    proxy: Callable[[Array], Array] = jax.nn.sigmoid,
) -> ScoreTerm:
    """(scores, batch) -> 1 where `positive` is predicted (`missed`: is not), straight through."""
    check_sharpness(kind, sharpness)

    def event(now: Once) -> Array:
        scores, decides = now.scores, now.task.decisions
        check_place(kind, positive, scores)
        hard = decides.chosen(scores, positive) != missed
        slope = -sharpness if missed else sharpness
        margin = decides.margin(scores, positive)
        return straight_through(hard.astype(scores.dtype), proxy(slope * margin))

    return Shared(event)


def mistake(kind: str, sharpness: float, positive: int | None = None) -> ScoreTerm:
    """(scores, batch) -> 1 where the prediction is not y, straight through.

    With `positive` only errors about that class or label count.
    """
    check_sharpness(kind, sharpness)

    def value(now: Once) -> Array:
        scores, y, decides = now.scores, now.batch["y"], now.task.decisions
        if scores.shape[1] < 2:
            raise UserError(
                f"constraint {kind!r} counts rows whose class is predicted wrongly; of a "
                "regression limit mae, rmse or beyond"
            )
        if positive is None:
            hard, surplus = ~decides.right(scores, y), decides.surplus(scores, y)
        else:
            check_place(kind, positive, scores)
            own, margin = decides.holds(y, positive), decides.margin(scores, positive)
            hard = decides.chosen(scores, positive) != own
            surplus = jnp.where(own, margin, -margin)
        return straight_through(hard.astype(scores.dtype), above_count(-sharpness * surplus))

    return Shared(value)


def check_place(kind: str, place: int, scores: Array) -> None:
    """Raise unless the scores have a class or label at this place."""
    if not 0 <= place < scores.shape[1] or scores.shape[1] < 2:
        raise UserError(
            f"constraint {kind!r}: {place} is not one of {scores.shape[1]} classes: set positive"
        )


def check_sharpness(kind: str, sharpness: float) -> None:
    """Raise unless the smooth stand-in of a count can be so steep."""
    if not (math.isfinite(sharpness) and sharpness > 0):
        raise UserError(f"constraint {kind!r}: sharpness = {sharpness}: it must be positive")
