"""Limits on the loss: of all rows or of every group, and on gaps between the losses of groups."""

from __future__ import annotations

from fedssca.problem.constraint_kinds import CompareName, KindName
from fedssca.problem.constraints.base import TASK_LOSS, Constraint, check_limit
from fedssca.problem.constraints.groups import Groups
from fedssca.problem.constraints.limited import each_at_most, gaps_at_most
from fedssca.problem.constraints.quantities import Quantity
from fedssca.problem.limits import Bound
from fedssca.problem.losses import LOSS
from fedssca.problem.pickling import remembered

__all__ = ["loss_at_most", "loss_gap_at_most"]


@remembered
def loss_at_most(limit: float, groups: Groups | None = None) -> list[Constraint]:
    """Training loss F(w) <= limit, the paper's constraint; with `groups` the loss of every group.

    The loss of a group S is the mean over all rows of (N / N_S) 1[row in S] loss.
    """
    check_limit("loss", limit)
    if groups is not None:
        return each_at_most(_loss("loss", groups), limit, groups)
    terms = {LOSS: (1.0, TASK_LOSS)}
    bound = Bound("cost", high=limit, title=LOSS, positive=True)
    return [Constraint(LOSS, terms, limit, bound=bound)]


@remembered
def loss_gap_at_most(
    limit: float, groups: Groups, *, compare: CompareName | None = None
) -> list[Constraint]:
    """|loss of a group - loss of another group, or of all rows| <= limit.

    `compare` is that of `parity_gap_at_most`.
    """
    check_limit("loss_gap", limit)
    return gaps_at_most(_loss("loss_gap", groups), limit, groups, compare)


def _loss(kind: KindName, groups: Groups) -> Quantity:
    """The mean loss; over all rows it is the term of the objective."""
    words = "loss" if kind == "loss" else "loss gap"
    return Quantity(
        kind, kind, words, LOSS, LOSS, TASK_LOSS, None, groups.all_rows(), stepwise=False
    )
