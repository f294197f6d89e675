"""Quantities that can be limited over all rows or over a group: rates, errors and losses.

The derivative of a 0/1 count is zero, so the terms are "straight through": their value is the true
count, their gradient that of a smooth stand-in. Gaps and precision use sigmoid(sharpness * margin),

    margin = score_positive - logsumexp(the other scores),

which for sharpness 1 is the softmax. Error rates use log(1 + log(1 + exp(.))) / log(1 + log 2) of
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
from collections.abc import Callable, Mapping, Sequence
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
from fedssca.problem.problem import Array, Batch, Rate

__all__ = [
    "Event",
    "Over",
    "Quantity",
    "above_count",
    "check_sharpness",
    "mistake",
    "predicted",
]

Event: TypeAlias = Callable[[Array], Array]
"""scores (B, L) -> one number per sample, (B,)."""
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
    mask: Mask | None
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
            return own if inside is None else jnp.where(inside(now.batch), factor, 0.0) * own

        def rates(now: Once) -> Sequence[Rate]:
            own = self.of(now, group)
            counted = jnp.ones_like(own)
            if inside is not None:
                counted = jnp.asarray(inside(now.batch)).astype(own.dtype)
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
                jnp.where(True if own is None else own(now.batch), factor, 0.0)
                for factor, own in factors
            ]
            return now.of(self.value) * sum(weights)

        def rates(now: Once) -> Sequence[Rate]:
            return [
                (sign * weight, top, bottom)
                for sign, _, reported in means
                for weight, top, bottom in now.of(reported)
            ]

        return Shared(term), Shared(rates)


def _both(a: Mask | None, b: Mask | None) -> Mask | None:
    if a is None or b is None:
        return b if a is None else a
    first, second = a, b

    def own(batch: Mapping[str, Any]) -> Any:
        return second(batch) & first(batch)

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
) -> Event:
    """scores -> 1 where the predicted class is `positive` (`missed`: is not), straight through."""
    check_sharpness(kind, sharpness)

    def event(scores: Array) -> Array:
        if not 0 <= positive < scores.shape[1]:
            raise UserError(
                f"constraint {kind!r}: {positive} is not one of {scores.shape[1]} classes: "
                "set positive"
            )
        others = jnp.delete(scores, positive, axis=1)
        margin = scores[:, positive] - jax.nn.logsumexp(others, axis=1)
        hard = (scores.argmax(axis=1) == positive) != missed
        slope = -sharpness if missed else sharpness
        return straight_through(hard.astype(scores.dtype), proxy(slope * margin))

    return event


def mistake(kind: str, sharpness: float) -> ScoreTerm:
    """(scores, batch) -> 1 where the predicted class is not y, straight through."""
    check_sharpness(kind, sharpness)

    def value(scores: Array, batch: Batch) -> Array:
        if scores.shape[1] < 2:
            raise UserError(
                f"constraint {kind!r} counts rows whose class is predicted wrongly; of a "
                "regression limit mae, rmse or beyond"
            )
        own = jax.nn.one_hot(batch["y"], scores.shape[1], dtype=scores.dtype)
        margin = (own * scores).sum(axis=1) - jax.nn.logsumexp(scores, axis=1, b=1 - own)
        hard = scores.argmax(axis=1) != batch["y"]
        return straight_through(hard.astype(scores.dtype), above_count(-sharpness * margin))

    return value


def check_sharpness(kind: str, sharpness: float) -> None:
    """Raise unless the smooth stand-in of a count can be so steep."""
    if not (math.isfinite(sharpness) and sharpness > 0):
        raise UserError(f"constraint {kind!r}: sharpness = {sharpness}: it must be positive")
