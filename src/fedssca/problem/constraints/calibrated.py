"""A limit on the calibration of a classifier: the rate that it expects of a group is observed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedssca.data.classes import Label
from fedssca.problem.constraints.base import Constraint, Once, Shared, check_limit
from fedssca.problem.constraints.classes import target_class
from fedssca.problem.constraints.groups import Groups
from fedssca.problem.constraints.limited import each_within
from fedssca.problem.constraints.quantities import Quantity, check_place
from fedssca.problem.pickling import remembered
from fedssca.problem.problem import Array

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

    p are the probabilities of the classes (softmax) or of several labels (sigmoid): the expected
    rate is the observed one.
    """
    check_limit("calibration", limit)
    target = target_class("constraint 'calibration'", positive, classes)

    def above(now: Once) -> Array:
        decides = now.task.decisions
        check_place("calibration", target.place, now.scores)
        own = decides.holds(now.batch["y"], target.place).astype(now.scores.dtype)
        return decides.chances(now.scores)[:, target.place] - own

    rows = np.ones(1, bool) if groups is None else groups.all_rows()
    key = f"calibration of {target.place}"
    name = "calibration" if target.place == 1 else f"calibration_{target.place}"
    words = f"expected less observed rate of {target.words}"
    quantity = Quantity("calibration", name, words, key, key, Shared(above), None, rows)
    return each_within(quantity._replace(stepwise=False, signed=True), limit, groups)
