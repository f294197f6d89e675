"""Limits on rates: error rates, recall, precision, and gaps between two groups.

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
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.problem.constraint_kinds import POSITIVE, SHARPNESS, KindName
from fedssca.problem.constraints.base import (
    Constraint,
    Rates,
    ScoreTerm,
    check_limit,
    straight_through,
)
from fedssca.problem.limits import Bound
from fedssca.problem.problem import Array, Batch, Rate

Subset: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""(columns by name) -> a mask of the rows that belong to the subset."""


def false_negative_rate_at_most(
    limit: float, labels: np.ndarray, *, positive: int = POSITIVE, sharpness: float = SHARPNESS
) -> list[Constraint]:
    """P(predicted != positive | y = positive) <= limit. `labels` are the training data's."""
    check_limit("fnr", limit)
    name, own, _ = _class("fnr", labels, positive)
    term, rates = _rate(
        _event("fnr", positive, sharpness, missed=True, proxy=above_count),
        {1.0: own},
        {"y": labels},
    )
    terms = {f"fnr[{positive}, {sharpness:g}]": (1.0, term)}
    return [Constraint(name, terms, limit, rates, stepwise=True)]


def false_positive_rate_at_most(
    limit: float, labels: np.ndarray, *, positive: int = POSITIVE, sharpness: float = SHARPNESS
) -> list[Constraint]:
    """P(predicted = positive | y != positive) <= limit. `labels` are the training data's."""
    check_limit("fpr", limit)
    name, _, others = _class("fpr", labels, positive)
    term, rates = _rate(
        _event("fpr", positive, sharpness, proxy=above_count), {1.0: others}, {"y": labels}
    )
    terms = {f"fpr[{positive}, {sharpness:g}]": (1.0, term)}
    return [Constraint(name, terms, limit, rates, stepwise=True)]


def recall_at_least(
    limit: float, labels: np.ndarray, *, positive: int = POSITIVE, sharpness: float = SHARPNESS
) -> list[Constraint]:
    """P(predicted = positive | y = positive) >= limit, i.e. false-negative rate <= 1 - limit."""
    check_limit("recall", limit)
    name, own, _ = _class("recall", labels, positive)
    settings: dict[str, Any] = {"positive": positive, "sharpness": sharpness}
    (misses,) = false_negative_rate_at_most(1 - limit, labels, **settings)
    _, rates = _rate(_event("recall", **settings), {1.0: own}, {"y": labels})
    return [misses._replace(name=name, rates=rates, bound=Bound(name, low=limit))]


def precision_at_least(
    limit: float, labels: np.ndarray, *, positive: int = POSITIVE, sharpness: float = SHARPNESS
) -> list[Constraint]:
    """TP / (TP + FP) >= limit, as the mean (limit FP - (1 - limit) TP) / N_positive <= 0.

    In this form it is also defined if no row is predicted positive and the ratio does not exist.
    """
    check_limit("precision", limit)
    name, own, _ = _class("precision", labels, positive)
    event = _event("precision", positive, sharpness)
    share = float(np.mean(own({"y": labels})))

    def term(scores: Array, batch: Batch) -> Array:
        return jnp.where(own(batch), limit - 1, limit) / share * event(scores)

    def rates(scores: Array, batch: Batch) -> Sequence[Rate]:
        chosen = event(scores)
        return [(1.0, chosen * own(batch), chosen)]

    terms = {f"precision[{positive}, {sharpness:g}, {limit}]": (1.0, term)}
    bound = Bound(name, low=limit)
    return [Constraint(name, terms, 0.0, rates, stepwise=True, bound=bound)]


def parity_gap_at_most(
    limit: float,
    groups: np.ndarray,
    column: str,
    *,
    positive: int = POSITIVE,
    sharpness: float = SHARPNESS,
) -> list[Constraint]:
    """|P(predicted = positive | g = 1) - P(predicted = positive | g = 0)| <= limit.

    `groups` are the values of `column` in the training data; g = 1 is the larger of the two. Both
    sides share one term, and the signed gap is reported.
    """
    return _gap("parity", limit, {column: groups}, column, positive, sharpness)


def opportunity_gap_at_most(
    limit: float,
    groups: np.ndarray,
    column: str,
    labels: np.ndarray,
    *,
    positive: int = POSITIVE,
    sharpness: float = SHARPNESS,
) -> list[Constraint]:
    """Equal opportunity: the same gap among the rows with y = positive (true-positive rates)."""
    _class("opportunity", labels, positive)
    return _gap("opportunity", limit, {column: groups, "y": labels}, column, positive, sharpness)


def _gap(
    kind: KindName,
    limit: float,
    columns: Mapping[str, np.ndarray],
    column: str,
    positive: int,
    sharpness: float,
) -> list[Constraint]:
    """Both sides of |rate of group 1 - rate of group 0| <= limit; with labels, if y = positive."""
    check_limit(kind, limit)
    values = np.unique(columns[column])
    if len(values) != 2:
        raise UserError(
            f"constraint {kind!r}: column {column!r} has {len(values)} values in the training data "
            f"({', '.join(map(str, values[:5]))}{', ...' if len(values) > 5 else ''}); it needs two"
        )

    def group(value: Any) -> Subset:
        if "y" not in columns:
            return lambda batch: batch[column] == value
        return lambda batch: (batch[column] == value) & (batch["y"] == positive)

    groups = {-1.0: group(values[0]), 1.0: group(values[1])}
    for value, rows in zip(values, groups.values(), strict=True):
        if not np.any(rows(columns)):
            raise UserError(
                f"constraint {kind!r}: no training row with {column} = {value} is of class "
                f"{positive}, so that group has no true-positive rate; "
                "use parity, or another column"
            )
    term, rates = _rate(_event(kind, positive, sharpness), groups, columns)
    name = f"{kind}_{column}" + (f"_{positive}" if positive != POSITIVE else "")
    terms = f"{kind}[{column}, {positive}, {sharpness:g}]"
    return [
        Constraint(name, {terms: (1.0, term)}, limit, rates, stepwise=True),
        Constraint(
            f"{name}_lower",
            {terms: (-1.0, term)},
            limit,
            stepwise=True,
            bound=Bound(name, low=-limit),
        ),
    ]


def above_count(x: Array) -> Array:
    """log(1 + log(1 + exp x)) / log(1 + log 2): at least 1[x >= 0] everywhere."""
    return jnp.log1p(jax.nn.softplus(x)) / math.log1p(math.log(2))


def _event(
    kind: str,
    positive: int,
    sharpness: float,
    missed: bool = False,
    proxy: Callable[[Array], Array] = jax.nn.sigmoid,
) -> Callable[[Array], Array]:
    """scores -> 1 where the predicted class is `positive` (`missed`: is not), straight through."""
    if not (math.isfinite(sharpness) and sharpness > 0):
        raise UserError(f"constraint {kind!r}: sharpness = {sharpness}: it must be positive")

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


def _rate(
    event: Callable[[Array], Array], parts: Mapping[float, Subset], train: Mapping[str, np.ndarray]
) -> tuple[ScoreTerm, Rates]:
    """sum over (weight, subset) of weight * P(event | subset): as a mean term, and as reported."""
    factors = [(weight / float(np.mean(rows(train))), rows) for weight, rows in parts.items()]

    def term(scores: Array, batch: Batch) -> Array:
        return event(scores) * sum(jnp.where(rows(batch), a, 0.0) for a, rows in factors)

    def rates(scores: Array, batch: Batch) -> Sequence[Rate]:
        happened = event(scores)
        inside = [(a, rows(batch).astype(happened.dtype)) for a, rows in parts.items()]
        return [(a, happened * rows, rows) for a, rows in inside]

    return term, rates


def _class(kind: str, labels: np.ndarray, positive: int) -> tuple[str, Subset, Subset]:
    """The constraint's name, the rows of class `positive`, and the others; neither may be empty."""
    count = int(np.sum(labels == positive))
    if not 0 < count < len(labels):
        what = f"{'no' if count == 0 else 'every'} training row is of class {positive}"
        raise UserError(f"constraint {kind!r}: {what}; there must be some of it and some others")
    plain = positive == POSITIVE and np.max(labels) <= 1
    name = kind if plain else f"{kind}_{positive}"
    return name, lambda columns: columns["y"] == positive, lambda columns: columns["y"] != positive
