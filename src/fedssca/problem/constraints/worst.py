"""The parts whose largest loss is minimised: the clients, or the groups of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.problem.constraints.base import (
    Constraint,
    Rates,
    ScoreTerm,
    client_losses,
    part_loss,
)
from fedssca.problem.limits import Bound
from fedssca.problem.problem import Batch

__all__ = ["MOST_GROUPS", "worst_parts"]

MOST_GROUPS = 50
"""The largest number of groups that a column may have."""


def worst_parts(
    objective: str,
    sizes: Sequence[int] | None = None,
    groups: np.ndarray | None = None,
    column: str | None = None,
    titles: Sequence[str] = (),
) -> list[Constraint]:
    """The loss F_i of every client or group, as constraints F_i <= 0 for `minimise_worst`.

    F_i is the mean over all rows of (N / N_i) 1[row in part i] loss. Other objectives give none.
    `titles` are the names of the clients, or of the values 0, 1, ... of the column.
    """
    if objective == "worst_client":
        if sizes is None:
            raise UserError('objective "worst_client" needs sizes: give sizes=clients.sizes')
        losses = client_losses(f"objective {objective!r}", sizes)
        called = titles or [f"client {i}" for i in range(len(sizes))]
        return [
            _part(f"client_{i}", f"client {i}", called[i], term, rates, client=i)
            for i, (term, rates) in enumerate(losses)
        ]
    if objective == "worst_group":
        if groups is None or not column:
            raise UserError(
                'objective "worst_group" needs column=<name> and groups=<its values in the '
                "training data>"
            )
        return _groups(np.asarray(groups), column, titles)
    return []


def _part(
    name: str, key: str, title: str, term: ScoreTerm, rates: Rates, client: int | None = None
) -> Constraint:
    bound = Bound(f"worst_{name}", high=0.0, title=f"loss, {title}", client=client)
    return Constraint(bound.quantity, {f"worst[{key}]": (1.0, term)}, 0.0, rates, bound=bound)


def _groups(groups: np.ndarray, column: str, titles: Sequence[str]) -> list[Constraint]:
    values, counts = np.unique(groups, return_counts=True)
    if not 2 <= len(values) <= MOST_GROUPS:
        raise UserError(
            f'objective "worst_group": column {column!r} has {len(values)} values in the training '
            f"data; it needs 2 to {MOST_GROUPS}"
        )

    def one(value: Any, count: int) -> Constraint:
        def own(batch: Batch) -> Any:
            return jnp.asarray(batch[column] == value)

        term, rates = part_loss(own, len(groups) / count)
        name = f"{column}_{value:g}"
        word = titles[int(value)] if titles else f"{value:g}"
        return _part(name, name, f"{column} = {word}", term, rates)

    return [one(value, int(count)) for value, count in zip(values, counts, strict=True)]
