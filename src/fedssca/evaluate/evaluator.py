"""What a run reports of a model: F_m over all rows, its measures, gradients.

Which measures there are (accuracy, rates of constraints) is said by the problem: see `measures` in
`problem/scores.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.evaluate.passes import Pairs, full_passes, held_out, training
from fedssca.evaluate.tally import SHARED_ROWS, Tally, TallySums, divided
from fedssca.methods.algorithm import State
from fedssca.methods.staleness import clock_of
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.rounds.shapes import batch_shape

__all__ = [
    "EvaluatedSums",
    "Evaluator",
    "clients_shown",
    "constant_loss",
    "evaluator_of",
    "evaluator_over",
    "state_row",
]

MOST_CLIENTS = 1000
"""Clients up to which everyone's own results are computed."""


class Evaluator(NamedTuple):
    """Evaluates a model on all rows, in chunks, with programs that are compiled once."""

    row: Callable[[Array], dict[str, Any]]
    """w -> objective, constraints, norm_sq, train_* and test_* rates."""
    gradients: Callable[[Array], np.ndarray]
    """w -> gradients of F_0..F_M over all training rows, (M+1, d)."""
    over: Callable[[Rows | Columns], Evaluator]
    """The same passes, compiled once, over other training rows of the same shape."""
    tally: Callable[[Array], Tally]
    """w -> the counts and sums of all measures: over all rows, for each group and each client."""
    constant: float | None = None
    """The loss of predicting the same class shares for every row; None where it is unknown."""
    noisy: bool = False
    """Values carry privacy noise; gradients and tallies are not computed."""


def evaluator_over(
    problem: Problem, train: Rows | Columns, test: Mapping[str, np.ndarray] | None
) -> Evaluator:
    """F_m and the problem's measures over all training rows, and the measures on `test`."""
    passes = full_passes(problem)
    held = held_out(test)

    def on(own: Batch, rows: Rows | Columns) -> Evaluator:
        total = rows.total

        def sums(w: Array) -> EvaluatedSums:
            means, rates = passes.sums(w, own)
            return EvaluatedSums(means, rates, None if held is None else passes.sums(w, held)[1])

        def tally(w: Array) -> TallySums:
            count, why = clients_shown(rows)
            test = None if held is None else passes.tally(w, held, count if owned else 0)
            return divided(problem, passes.tally(w, own, count), test, why)

        evaluator = evaluator_of(
            problem, train, lambda: total, sums, lambda w: passes.jacobian(w, own), tally
        )
        return evaluator._replace(
            over=lambda other: on(training(other), other),
            constant=constant_loss(rows.columns.get("y")),
        )

    owned = test is not None and "client" in test
    return on(training(train), train)


def clients_shown(rows: Rows | Columns) -> tuple[int, str]:
    """The number of clients whose own results are computed, and why there are none."""
    if isinstance(rows, Columns):
        return 0, SHARED_ROWS
    if rows.count > MOST_CLIENTS:
        return 0, f"there are more than {MOST_CLIENTS:,} clients"
    return rows.count, ""


def constant_loss(labels: Any) -> float | None:
    """-sum_l p_l log p_l, where p_l is the share of class l: the best loss without features."""
    if labels is None or np.ndim(labels) != 1 or np.asarray(labels).dtype.kind not in "iu":
        return None
    share = np.unique(np.asarray(labels), return_counts=True)[1] / len(labels)
    return float(-(share * np.log(share)).sum())


class EvaluatedSums(NamedTuple):
    """Sums over rows at a point; sums over the rows of different holders add up."""

    terms: Array
    """The K sampled terms over the training rows."""
    train: Pairs
    test: Pairs | None
    """The measures on held-out rows; None: there are none."""


def evaluator_of(
    problem: Problem,
    like: Rows | Columns,
    total: Callable[[], int],
    sums: Callable[[Array], EvaluatedSums],
    jacobian: Callable[[Array], Any] | None,
    tally: Callable[[Array], TallySums] | None,
) -> Evaluator:
    """An evaluator from functions that add up over rows, which may be anywhere.

    `like` has the shapes of their columns; `total`, called after `sums`, is the number of rows
    that the sums are over. With privacy noise there is neither a `jacobian` nor a `tally`.
    """

    @functools.cache
    def weights() -> dict[str, list[float]]:
        """The weights of the rates, which are plain numbers, found without computing anything."""
        found: dict[str, list[float]] = {}

        def look(w: Array, batch: Batch) -> Array:
            found.update({k: [a for a, _, _ in v] for k, v in problem.measure(w, batch).items()})
            return w

        jax.eval_shape(look, problem.start, batch_shape(like, 1, problem.start.dtype))
        return found

    def named(prefix: str, rates: Pairs) -> dict[str, float]:
        """EvaluatedSums of rates; one whose denominator is empty is left out."""
        out = {}
        for name, parts in rates.items():
            pairs = [np.asarray(part, float) for part in parts]
            if all(bottom > 0 for _, bottom in pairs):
                value = float(
                    sum(
                        a * top / bottom
                        for a, (top, bottom) in zip(weights()[name], pairs, strict=True)
                    )
                )
                out[name] = value if name not in problem.rooted else max(value, 0.0) ** 0.5
        return {f"{prefix}_{name}": value for name, value in problem.report(out).items()}

    def row(w: Array) -> dict[str, Any]:
        own = problem.model(w)
        w = problem.extended(own)
        found = sums(w)
        means = np.asarray(jnp.asarray(found.terms)) / float(total())
        values = problem.values(means, float(w @ w)).astype(float)
        rounding = 4 * float(np.finfo(means.dtype).eps)
        for m in problem.stepwise:
            # A count that is exactly on its limit keeps it; the sum of its weights is rounded.
            values[m + 1] = 0.0 if abs(values[m + 1]) <= rounding else values[m + 1]
        out: dict[str, Any] = {
            "objective": float(values[0]),
            "constraints": [float(value) for value in values[1:]],
            "norm_sq": float(own @ own),
        }
        out |= named("train", found.train)
        if found.test is not None:
            out |= named("test", found.test)
        return out | _worst(problem, out)

    def gradients(w: Array) -> np.ndarray:
        if jacobian is None:
            raise TypeError("gradients over all rows are not computed in a run with noise")
        slopes = problem.combine @ np.asarray(jacobian(w), float)
        slopes /= total()
        for m in np.flatnonzero(problem.known):  # one row at a time: models may be large
            slopes[m] += 2 * problem.known[m] * np.asarray(w, float)
        return slopes

    def over(other: Rows | Columns) -> Evaluator:
        raise TypeError("these rows are not in this process: build another evaluator")

    def counted(w: Array) -> Tally:
        if tally is None:
            raise TypeError("groups and clients are not tallied in a run with noise")
        sums = tally(problem.extended(problem.model(w)))
        return Tally(weights(), sums, problem.rooted, problem.report)

    return Evaluator(row, gradients, over, counted, noisy=jacobian is None)


def _worst(problem: Problem, row: Mapping[str, Any]) -> dict[str, float]:
    """`train_worst` and `test_worst`: the largest measure of those F_m whose maximum is minimised.

    There is none for held-out rows if not all of them have a measure there, as with clients.
    """
    out = {}
    for part in ("train", "test"):
        found = [row.get(f"{part}_{problem.names[m - 1]}") for m in problem.worst]
        known = [value for value in found if value is not None]
        if found and len(known) == len(found):
            out[f"{part}_worst"] = max(known)
    return out


def state_row(state: State) -> dict[str, Any]:
    """The server's own numbers of a round, and the time on the clock of simulated delays."""
    clock = clock_of(state)
    return ({} if clock is None else {"clock": float(clock.now)}) | {
        "round": int(state.round),
        "slack": np.asarray(state.slack, float).tolist(),
        "multipliers": np.asarray(state.multipliers, float).tolist(),
    }
