"""The evaluator of a simulation in which every client has a personal part of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.evaluate.evaluator import (
    EvaluatedSums,
    Evaluator,
    clients_shown,
    constant_loss,
    evaluator_of,
)
from fedssca.evaluate.passes import everything, full_passes, held_out
from fedssca.evaluate.tally import TallySums, divided
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.rounds.personal import view_of

__all__ = ["personal_evaluator"]


def personal_evaluator(
    problem: Problem, train: Rows | Columns, test: Mapping[str, np.ndarray] | None
) -> Evaluator:
    """Sums of all clients, each over its own rows with its own model (w, p_i).

    Held-out rows that belong to no client are judged by the models of all clients, client i
    counting N_i / N. Gradients are those with respect to w.
    """
    assert isinstance(train, Rows)
    views, held = [view_of(problem, i) for i in range(train.count)], held_out(test)
    passes = full_passes(views[0].problem)
    own = [
        everything(train.client(i), np.full(size, i, np.int32))
        for i, size in enumerate(train.sizes)
    ]
    owned = test is not None and "client" in test
    count, why = clients_shown(train)

    def model(number: int, w: Array) -> Array:
        return views[number].point(w)

    def own_held(number: int) -> Batch:
        assert held is not None
        share = held["client"] == number if owned else train.sizes[number] / train.total
        return held | {"weight": held["weight"] * jnp.asarray(share, held["weight"].dtype)}

    def added(each: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *each)

    def sums(w: Array) -> EvaluatedSums:
        found = [passes.sums(model(i, w), rows) for i, rows in enumerate(own)]
        means, rates = added(found)
        test_rates = None
        if held is not None:
            test_rates = added(
                [passes.sums(model(i, w), own_held(i))[1] for i in range(train.count)]
            )
        return EvaluatedSums(means, rates, test_rates)

    def jacobian(w: Array) -> Array:
        found: Array = added([passes.jacobian(model(i, w), rows) for i, rows in enumerate(own)])
        return views[0].common(found)

    def tally(w: Array) -> TallySums:
        found = added([passes.tally(model(i, w), rows, count) for i, rows in enumerate(own)])
        other = None
        if held is not None:
            number = count if owned else 0
            other = added(
                [passes.tally(model(i, w), own_held(i), number) for i in range(train.count)]
            )
        return divided(problem, found, other, why)

    made = evaluator_of(problem, train, lambda: train.total, sums, jacobian, tally)
    return made._replace(constant=constant_loss(train.columns.get("y")))
