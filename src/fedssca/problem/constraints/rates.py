"""Limits on rates: error rates, recall, precision, and gaps between groups.

`quantities` has the formulas, `groups` the groups of rows, and `limited` makes the constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.data.classes import Label
from fedssca.errors import UserError
from fedssca.problem.constraint_kinds import POSITIVE, SHARPNESS, CompareName, KindName
from fedssca.problem.constraints.base import (
    Constraint,
    Once,
    Rates,
    ScoreTerm,
    Shared,
    check_limit,
)
from fedssca.problem.constraints.classes import TargetClass, coded, target_class
from fedssca.problem.constraints.groups import Group, Groups
from fedssca.problem.constraints.limited import each_at_most, gaps_at_most
from fedssca.problem.constraints.quantities import (
    Quantity,
    above_count,
    mistake,
    predicted,
)
from fedssca.problem.pickling import remembered
from fedssca.problem.problem import Array, Rate


@remembered
def error_at_most(
    limit: float,
    *,
    positive: Label | None = None,
    sharpness: float = SHARPNESS,
    classes: Sequence[Label] | None = None,
    groups: Groups | None = None,
) -> list[Constraint]:
    """P(predicted != y) <= limit, over all rows or over the rows of every group.

    With `positive` only errors about that class, or that one of several labels, are counted.
    """
    check_limit("error", limit)
    rows = np.ones(1, bool) if groups is None else groups.all_rows()
    key, name, words, place = f"error[{sharpness:g}]", "error", "error", None
    if positive is not None:
        target = target_class("constraint 'error'", positive, classes)
        place, words = target.place, f"error about {target.words}"
        key, name = f"error[{place}, {sharpness:g}]", f"error_{place}"
    value = mistake("error", sharpness, place)
    return each_at_most(Quantity("error", name, words, key, key, value, None, rows), limit, groups)


@remembered
def false_negative_rate_at_most(
    limit: float,
    labels: np.ndarray,
    *,
    positive: Label | None = None,
    sharpness: float = SHARPNESS,
    classes: Sequence[Label] | None = None,
    groups: Groups | None = None,
) -> list[Constraint]:
    """P(predicted != positive | y = positive) <= limit. `labels` are the training data's.

    `positive` is the name of a class, or its number. It can be left out where the classes are 0 and
    1, or false and true. `classes` are the names of the classes 0, 1, ...; labels of text have them
    in sorted order. Several labels at once are a table of zeros and ones with a column for each,
    and `positive` is the name or number of one. With `groups` the limit holds for every group.
    """
    check_limit("fnr", limit)
    own = _class("fnr", labels, positive, classes)
    return each_at_most(own.misses("fnr", sharpness), limit, groups)


@remembered
def false_positive_rate_at_most(
    limit: float,
    labels: np.ndarray,
    *,
    positive: Label | None = None,
    sharpness: float = SHARPNESS,
    classes: Sequence[Label] | None = None,
    groups: Groups | None = None,
) -> list[Constraint]:
    """P(predicted = positive | y != positive) <= limit. `labels` are the training data's.

    The options are those of `false_negative_rate_at_most`.
    """
    check_limit("fpr", limit)
    own = _class("fpr", labels, positive, classes)
    event = predicted("fpr", own.target.place, sharpness, proxy=above_count)
    key = f"fpr[{own.target.place}, {sharpness:g}]"
    return each_at_most(own.rate("fpr", event, sharpness, others=True, valued=key), limit, groups)


@remembered
def recall_at_least(
    limit: float,
    labels: np.ndarray,
    *,
    positive: Label | None = None,
    sharpness: float = SHARPNESS,
    classes: Sequence[Label] | None = None,
    groups: Groups | None = None,
) -> list[Constraint]:
    """P(predicted = positive | y = positive) >= limit, i.e. false-negative rate <= 1 - limit.

    The options are those of `false_negative_rate_at_most`.
    """
    check_limit("recall", limit)
    own = _class("recall", labels, positive, classes)
    hits = own.rate("recall", predicted("recall", own.target.place, sharpness), sharpness)
    misses = own.misses("recall", sharpness)
    return each_at_most(misses, 1 - limit, groups, low=limit, reported=hits)


@remembered
def precision_at_least(
    limit: float,
    labels: np.ndarray,
    *,
    positive: Label | None = None,
    sharpness: float = SHARPNESS,
    classes: Sequence[Label] | None = None,
    groups: Groups | None = None,
) -> list[Constraint]:
    """TP / (TP + FP) >= limit, as the mean (limit FP - (1 - limit) TP) / N_positive <= 0.

    In this form it is also defined if no row is predicted positive and the ratio does not exist.
    The options are those of `false_negative_rate_at_most`.
    """
    check_limit("precision", limit)
    own = _class("precision", labels, positive, classes)
    event, place = predicted("precision", own.target.place, sharpness), own.target.place

    def over(group: Group) -> tuple[ScoreTerm, Rates]:
        share = float(np.mean(own.base & group.rows))

        def term(now: Once) -> Array:
            weight = jnp.where(_of(now, place), limit - 1, limit) / share
            value = weight * chosen.of(now, group)
            return value if group.own is None else jnp.where(group.own(now.batch), value, 0.0)

        def rates(now: Once) -> Sequence[Rate]:
            picked = chosen.of(now, group)
            if group.own is not None:
                picked = jnp.where(group.own(now.batch), picked, 0.0)
            return [(1.0, picked * _of(now, place), picked)]

        return Shared(term), Shared(rates)

    chosen = own.rate("precision", event, sharpness)
    quantity = chosen._replace(key=f"precision[{place}, {sharpness:g}, {limit}]", ratio=over)
    return each_at_most(quantity, 0.0, groups, low=limit)


@remembered
def parity_gap_at_most(
    limit: float,
    groups: np.ndarray | Groups,
    column: str | None = None,
    *,
    positive: Label | None = None,
    sharpness: float = SHARPNESS,
    classes: Sequence[Label] | None = None,
    compare: CompareName | None = None,
) -> list[Constraint]:
    """|P(predicted = positive | g) - P(predicted = positive | h)| <= limit for groups g and h.

    `groups` are the values of `column` in the training data, or `Groups`. Two groups are compared
    with each other: g has the larger value. More groups are compared with all rows, or by pairs
    with compare="pairs". Both sides share their terms, and the signed gap is reported.
    """
    check_limit("parity", limit)
    divided = _groups("parity", groups, column)
    target = target_class("constraint 'parity'", positive, classes)
    return gaps_at_most(_chosen("parity", target, sharpness, divided), limit, divided, compare)


@remembered
def opportunity_gap_at_most(
    limit: float,
    groups: np.ndarray | Groups,
    column: str | None = None,
    labels: np.ndarray | None = None,
    *,
    positive: Label | None = None,
    sharpness: float = SHARPNESS,
    classes: Sequence[Label] | None = None,
    compare: CompareName | None = None,
) -> list[Constraint]:
    """Equal opportunity: the same gap among the rows with y = positive (true-positive rates)."""
    check_limit("opportunity", limit)
    if labels is None:
        raise UserError("constraint 'opportunity' needs labels=<those of the training data>")
    own = _class("opportunity", labels, positive, classes)
    divided = _groups("opportunity", groups, column)
    place = own.target.place
    quantity = _chosen("opportunity", own.target, sharpness, divided)._replace(
        mask=lambda now: _of(now, place), base=own.base, among=own.among
    )
    return gaps_at_most(quantity, limit, divided, compare)


def _chosen(kind: KindName, target: TargetClass, sharpness: float, groups: Groups) -> Quantity:
    """The rate of positive predictions."""
    return Quantity(
        kind,
        kind,
        f"{kind} of {target.words}",
        f"{kind}[{target.place}, {sharpness:g}]",
        f"predicted[{target.place}, {sharpness:g}]",
        predicted(kind, target.place, sharpness),
        None,
        groups.all_rows(),
        suffix="" if target.place == POSITIVE else str(target.place),
        assumed=target.assumed,
    )


def _groups(kind: str, groups: np.ndarray | Groups, column: str | None) -> Groups:
    if isinstance(groups, Groups):
        if column is not None:
            raise UserError(f"constraint {kind!r}: groups have their columns; leave column out")
        return groups
    if not column:
        raise UserError(f"constraint {kind!r} needs column=<name of the column of groups>")
    return Groups({column: np.asarray(groups)})


def _of(now: Once, place: int) -> Any:
    """Which rows of a batch are of a class, or have a label."""
    return now.task.decisions.holds(now.batch["y"], place)


class _Class(NamedTuple):
    """The class that a rate is about, and its rows."""

    name: str
    """The beginning of the names of constraints."""
    kind: KindName
    target: TargetClass
    base: np.ndarray
    """Which training rows are of the class."""

    @property
    def among(self) -> str:
        """The rows of the class in words."""
        return f" of {self.target.words}"

    def misses(self, kind: KindName, sharpness: float) -> Quantity:
        """The false-negative rate."""
        event = predicted(kind, self.target.place, sharpness, missed=True, proxy=above_count)
        key = f"fnr[{self.target.place}, {sharpness:g}]"
        return self.rate(kind, event, sharpness, valued=key)._replace(key=key)

    def rate(
        self,
        kind: KindName,
        event: ScoreTerm,
        sharpness: float,
        others: bool = False,
        valued: str = "",
    ) -> Quantity:
        """The mean of an event over the rows of the class, or over all `others`."""
        place = self.target.place

        def mask(now: Once) -> Any:
            return ~_of(now, place) if others else _of(now, place)

        return Quantity(
            kind,
            self.name,
            f"{kind} of {self.target.words}",
            f"{kind}[{place}, {sharpness:g}]",
            valued or f"predicted[{place}, {sharpness:g}]",
            event,
            mask,
            ~self.base if others else self.base,
            f" not{self.among}" if others else self.among,
            assumed=self.target.assumed,
        )


def _class(
    kind: KindName, labels: np.ndarray, positive: Label | None, classes: Sequence[Label] | None
) -> _Class:
    """The rows of the class that a rate is about; there must be some, and some others."""
    y, names = coded(np.asarray(labels), classes)
    target = target_class(f"constraint {kind!r}", positive, names)
    own = np.asarray(y == target.place if y.ndim == 1 else y[:, target.place] != 0)
    if own.all() or not own.any():
        what = f"{'every' if own.any() else 'no'} training row is of {target.words}"
        raise UserError(f"constraint {kind!r}: {what}; there must be some of it and some others")
    plain = target.place == POSITIVE and y.ndim == 1 and np.max(y) <= 1
    assumed = classes is None and positive is None
    return _Class(
        kind if plain else f"{kind}_{target.place}", kind, target._replace(assumed=assumed), own
    )
