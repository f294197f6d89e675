"""Limits on the errors of a regression: of all rows or of every group, in the target's own unit.

The error of a row is prediction - target. With e the error in the unit in which the target is
trained (`Task.error`), and `scale` that unit,

    mae       scale * mean |e| <= limit
    rmse      scale^2 * mean e^2 / (2 limit) <= limit / 2, which at its limit rises as the RMSE does
    mae_gap   |mae of a group - mae of another group, or of all rows| <= limit
    beyond    the share of rows with scale * |e| > bound is <= limit
    bias      |scale * mean e| <= limit
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.problem.constraint_kinds import SHARPNESS, CompareName, KindName
from fedssca.problem.constraints.base import (
    Constraint,
    Once,
    ScoreTerm,
    Shared,
    check_limit,
    straight_through,
)
from fedssca.problem.constraints.groups import Groups
from fedssca.problem.constraints.limited import each_at_most, each_within, gaps_at_most
from fedssca.problem.constraints.quantities import Quantity, above_count, check_sharpness
from fedssca.problem.pickling import remembered
from fedssca.problem.problem import Array

__all__ = ["beyond_at_most", "bias_at_most", "mae_at_most", "mae_gap_at_most", "rmse_at_most"]


def _size(now: Once) -> Array:
    return jnp.abs(now.task.error(now.scores, now.batch))


def _signed(now: Once) -> Array:
    return now.task.error(now.scores, now.batch)


@remembered
def mae_at_most(limit: float, groups: Groups | None = None) -> list[Constraint]:
    """The mean absolute error, in the target's unit, is at most the limit, also of every group."""
    check_limit("mae", limit)
    return each_at_most(_errors("mae", "mean absolute error", Shared(_size), groups), limit, groups)


@remembered
def rmse_at_most(limit: float, groups: Groups | None = None) -> list[Constraint]:
    """The RMSE, in the target's unit, is at most the limit, also of every group."""
    check_limit("rmse", limit)

    def square(now: Once) -> Array:
        return jnp.square(now.task.error(now.scores, now.batch))

    own = _errors("rmse", "RMSE", Shared(square), groups, units=2)
    factor = 1 / (2 * limit)
    return [
        made._replace(
            terms={name: (factor * weight, fn) for name, (weight, fn) in made.terms.items()},
            limit=limit / 2,
        )
        for made in each_at_most(own, limit, groups)
    ]


@remembered
def mae_gap_at_most(
    limit: float, groups: Groups, *, compare: CompareName | None = None
) -> list[Constraint]:
    """|mean absolute error of a group - that of another group, or of all rows| <= limit.

    `compare` is that of `parity_gap_at_most`.
    """
    check_limit("mae_gap", limit)
    own = _errors("mae_gap", "gap of mean absolute errors", Shared(_size), groups)
    return gaps_at_most(own, limit, groups, compare)


@remembered
def beyond_at_most(
    limit: float,
    groups: Groups | None = None,
    *,
    bound: float,
    sharpness: float = SHARPNESS,
) -> list[Constraint]:
    """The share of rows whose |error| is above `bound`, in the target's unit, is at most the limit.

    The share is a count of rows; its gradient is that of a smooth function of |error| / bound.
    """
    check_limit("beyond", limit)
    check_sharpness("beyond", sharpness)
    if not bound > 0:
        raise UserError(f"constraint 'beyond': bound = {bound}: it must be positive")

    def far(now: Once) -> Array:
        share = _size(now) * (now.task.scale / bound)
        return straight_through(
            (share > 1).astype(share.dtype), above_count(sharpness * (share - 1))
        )

    words = f"share of errors beyond {bound:g}"
    key = f"beyond {bound!r}, sharpness {sharpness!r}"
    own = _errors("beyond", words, Shared(far), groups, units=0)._replace(
        key=key, valued=key, stepwise=True
    )
    return each_at_most(own, limit, groups)


@remembered
def bias_at_most(limit: float, groups: Groups | None = None) -> list[Constraint]:
    """The mean of prediction - target, in the target's unit, lies within -limit and limit.

    With `groups` it does so in every group: the predictions of each are right on average.
    """
    check_limit("bias", limit)
    return each_within(_errors("bias", "mean error", Shared(_signed), groups), limit, groups)


def _errors(
    kind: KindName, words: str, value: ScoreTerm, groups: Groups | None, units: int = 1
) -> Quantity:
    """A mean over rows; limits over all rows need no marks, so that one row stands for all."""
    base = np.ones(1, bool) if groups is None else groups.all_rows()
    key = "mae" if kind == "mae_gap" else kind
    return Quantity(kind, kind, words, key, key, value, None, base, stepwise=False, units=units)
