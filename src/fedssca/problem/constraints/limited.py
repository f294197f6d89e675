"""Constraints from a quantity and its groups: a limit for each group, or for gaps between them.

The names and the titles of all constraints on groups and clients are made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fedssca.errors import UserError
from fedssca.problem.constraint_kinds import CompareName
from fedssca.problem.constraints.base import Constraint
from fedssca.problem.constraints.groups import Division, Group, Groups
from fedssca.problem.constraints.quantities import Quantity
from fedssca.problem.limits import Bound

__all__ = ["each_at_most", "each_within", "gaps_at_most"]


def each_at_most(
    quantity: Quantity,
    limit: float,
    groups: Groups | None,
    low: float | None = None,
    reported: Quantity | None = None,
) -> list[Constraint]:
    """quantity <= limit over all rows, or over the rows of every group (and client).

    With `low`, another `reported` quantity is at least `low`, which says the same.
    """
    shown = reported or quantity
    column = ""
    if groups is None:
        everything = Group("", "", "all", "", np.ones(len(quantity.base), bool))
        divisions = [Division(everything, [everything])]
    else:
        column = groups.column
        divisions = groups.divide(f"constraint {quantity.kind!r}", quantity.base, quantity.among)
    made = []
    for division in divisions:
        for group in division.groups:
            name = _name(shown.name, column, group.value, division=division)
            title = _title(shown.words, group.title, division.called)
            bound = Bound(name, None, limit, title, division.client, quantity.clipped)
            bound = bound._replace(rate=quantity.stepwise)
            if low is not None:
                bound = bound._replace(low=low, high=None)
            made.append(
                Constraint(
                    name,
                    {quantity.term(group): (1.0, quantity.over(group)[0])},
                    limit,
                    shown.over(group)[1],
                    quantity.stepwise,
                    bound,
                    quantity.assumed,
                    units=quantity.units,
                )
            )
    return _noted(made, divisions)


def each_within(quantity: Quantity, limit: float, groups: Groups | None) -> list[Constraint]:
    """-limit <= quantity <= limit over all rows, or over the rows of every group (and client)."""
    made = []
    for upper in each_at_most(quantity, limit, groups):
        assert upper.bound is not None
        lower = upper._replace(
            name=f"{upper.name}_lower",
            terms={name: (-weight, fn) for name, (weight, fn) in upper.terms.items()},
            rates=None,
            bound=upper.bound._replace(low=-limit, high=None),
            note="",
        )
        made += [upper, lower]
    return made


def gaps_at_most(
    quantity: Quantity, limit: float, groups: Groups, compare: CompareName | None
) -> list[Constraint]:
    """-limit <= quantity of one group - quantity of another <= limit.

    By default two groups are compared with each other, and each of more groups with all rows
    ("all"). "pairs" compares every group with every other.
    """
    what = f"constraint {quantity.kind!r}"
    if not groups.columns:
        raise UserError(f"{what} compares groups: give it the column that divides the rows")
    divisions = groups.divide(what, quantity.base, quantity.among, two=True)
    made = []
    for division in divisions:
        several = len(division.groups) > 2
        if (compare or ("all" if several else "pairs")) == "all":
            pairs = [(division.whole, group) for group in division.groups]
        else:
            pairs = list(combinations(division.groups, 2))
        for low, high in pairs:
            alone = not several and low is not division.whole
            made += _gap(quantity, limit, groups.column, division, low, high, alone)
    return _noted(made, divisions)


def _gap(
    quantity: Quantity,
    limit: float,
    column: str,
    division: Division,
    low: Group,
    high: Group,
    alone: bool,
) -> list[Constraint]:
    """Both sides of |quantity of `high` - quantity of `low`| <= limit.

    A gap that is `alone` needs one mean and is named after the column. Others use the means of
    the groups, which several gaps share, and are named after the groups too.
    """
    values = [] if alone else [high.value, low.value]
    name = _name(quantity.name, column, quantity.suffix, *values, division=division)
    title = _title(quantity.words, f"{high.title} against {low.short}", division.called)
    term, rates = quantity.apart(low, high)
    if alone:
        terms = {quantity.term(low, high): (1.0, term)}
    else:
        terms = {
            quantity.term(high): (1.0, quantity.over(high)[0]),
            quantity.term(low): (-1.0, quantity.over(low)[0]),
        }
    whole = low is division.whole
    upper = Bound(name, None, limit, title, division.client, quantity.clipped, whole)
    upper = upper._replace(rate=quantity.stepwise)
    lower = upper._replace(low=-limit, high=None)
    return [
        Constraint(
            side,
            {key: (sign * weight, term) for key, (weight, term) in terms.items()},
            limit,
            reported,
            quantity.stepwise,
            bound,
            quantity.assumed,
            units=quantity.units,
        )
        for side, sign, reported, bound in (
            (name, 1.0, rates, upper),
            (f"{name}_lower", -1.0, None, lower),
        )
    ]


def _name(*parts: str, division: Division) -> str:
    client = "" if division.client is None else f"client_{division.client}"
    return "_".join(part for part in (*parts, client) if part)


def _title(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _noted(made: list[Constraint], divisions: Sequence[Division]) -> list[Constraint]:
    """The constraints, the first of which tells of clients that have no groups."""
    notes = "; ".join(division.note for division in divisions if division.note)
    return [made[0]._replace(note=notes), *made[1:]] if notes else made
