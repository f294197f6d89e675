"""A limit on the calibration of a classifier: the rate that it expects of a group is observed."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from fedssca.data.classes import Label
from fedssca.errors import UserError
from fedssca.problem.constraints.base import Constraint, check_limit
from fedssca.problem.constraints.classes import target_class
from fedssca.problem.constraints.groups import Groups
from fedssca.problem.constraints.limited import each_within
from fedssca.problem.constraints.quantities import Quantity
from fedssca.problem.pickling import remembered
from fedssca.problem.problem import Array, Batch

__all__ = ["calibration_at_most"]


@remembered
def calibration_at_most(
    limit: float,
    groups: Groups | None = None,
    *,
    positive: Label | None = None,
    classes: Sequence[Label] | None = None,
) -> list[Constraint]:
    """|mean of p(positive) - share of rows of the class positive| <= limit, also in every group.

    p are the probabilities softmax(scores): the expected rate of the class is the observed one.
    """
    check_limit("calibration", limit)
    target = target_class("constraint 'calibration'", positive, classes)

    def above(scores: Array, batch: Batch) -> Array:
        if not 0 <= target.place < scores.shape[1] or scores.shape[1] < 2:
            raise UserError(
                f"constraint 'calibration': {target.place} is not one of {scores.shape[1]} "
                "classes: set positive"
            )
        own = (batch["y"] == target.place).astype(scores.dtype)
        return jax.nn.softmax(scores, axis=1)[:, target.place] - own

    rows = np.ones(1, bool) if groups is None else groups.all_rows()
    key = f"calibration of {target.place}"
    name = "calibration" if target.place == 1 else f"calibration_{target.place}"
    words = f"expected less observed rate of {target.words}"
    quantity = Quantity("calibration", name, words, key, key, above, None, rows)
    return each_within(quantity._replace(stepwise=False, signed=True), limit, groups)
