"""What a run reports of a model: F_m over all rows, its measures, gradients.

Which measures there are (accuracy, rates of constraints) is said by the problem: see `measures` in
`problem/scores.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.memory import on_device, summed
from fedssca.data.split import Columns, Rows
from fedssca.methods.algorithm import State
from fedssca.problem.problem import Array, Batch, Problem, Rate
from fedssca.rounds.shapes import batch_shape

__all__ = ["EvaluatedSums", "Evaluator", "evaluator_of", "evaluator_over", "state_row"]

CHUNK = 4096


class Evaluator(NamedTuple):
    """Evaluates a model on all rows, in chunks, with programs that are compiled once."""

    row: Callable[[Array], dict[str, Any]]
    """w -> objective, constraints, norm_sq, train_* and test_* rates."""
    gradients: Callable[[Array], np.ndarray]
    """w -> gradients of F_0..F_M over all training rows, (M+1, d)."""
    over: Callable[[Rows | Columns], Evaluator]
    """The same passes, compiled once, over other training rows of the same shape."""
    losses: Callable[[Array], list[float | None]] | None = None
    """w -> the mean cost over each client's own rows; None where it must stay unknown."""
    constant: float | None = None
    """The loss of predicting the same class shares for every row; None where it is unknown."""


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

        evaluator = evaluator_of(
            problem, train, lambda: total, sums, lambda w: passes.jacobian(w, own)
        )
        return evaluator._replace(
            over=lambda other: on(training(other), other),
            losses=(lambda w: client_losses(problem, w, own, rows.count)) if by_rows else None,
            constant=constant_loss(rows.columns.get("y")),
        )

    by_rows = isinstance(train, Rows)
    return on(training(train), train)


def constant_loss(labels: Any) -> float | None:
    """-sum_l p_l log p_l, where p_l is the share of class l: the best loss without features."""
    if labels is None or np.ndim(labels) != 1 or np.asarray(labels).dtype.kind not in "iu":
        return None
    share = np.unique(np.asarray(labels), return_counts=True)[1] / len(labels)
    return float(-(share * np.log(share)).sum())


def client_losses(problem: Problem, w: Array, rows: Batch, count: int) -> list[float | None]:
    """F_i(w), the mean cost over the rows of client i, for each of `count` clients."""

    @jax.jit
    def sums(w: Array, rows: Batch) -> Array:
        return _over(rows, lambda chunk: part(w, chunk))

    def part(w: Array, chunk: Batch) -> Array:
        ((_, top, bottom),) = problem.measure(w, chunk)["cost"]
        pair = jnp.stack([top, bottom], axis=1) * chunk["weight"].astype(w.dtype)[:, None]
        return jax.ops.segment_sum(pair, jnp.maximum(chunk["client"], 0), count)

    return [mean_cost(pair) for pair in np.asarray(sums(w, rows), float)]


def mean_cost(pair: np.ndarray) -> float | None:
    """The mean from the sum of costs and the number of rows; None if there are no rows."""
    top, bottom = pair
    return float(top / bottom) if bottom > 0 else None


Pairs: TypeAlias = dict[str, list[Array]]
"""Name -> numerator and denominator of every rate that the measure is a sum of."""


class EvaluatedSums(NamedTuple):
    """Sums over rows at a point; sums over the rows of different holders add up."""

    terms: Array
    """The K sampled terms over the training rows."""
    train: Pairs
    test: Pairs | None
    """The measures on held-out rows; None: there are none."""


class Passes(NamedTuple):
    """EvaluatedSums over chunks of rows, compiled once."""

    sums: Callable[[Array, Batch], tuple[Array, Pairs]]
    jacobian: Callable[[Array, Batch], Array]
    """(K, d)."""


def full_passes(problem: Problem) -> Passes:
    """The sums of a problem's terms and measures over rows, chunk by chunk."""

    @jax.jit
    def sums(w: Array, rows: Batch) -> tuple[Array, Pairs]:
        return _over(rows, lambda chunk: part(w, chunk))

    def part(w: Array, chunk: Batch) -> tuple[Array, Pairs]:
        weight = chunk["weight"].astype(w.dtype)
        return problem.terms(w, chunk) @ weight, added(problem.measure(w, chunk), weight)

    @jax.jit
    def jacobian(w: Array, rows: Batch) -> Array:
        return _over(rows, lambda chunk: jax.jacrev(lambda point: part(point, chunk)[0])(w))

    return Passes(sums, jacobian)


def added(measures: dict[str, Sequence[Rate]], weight: Array) -> Pairs:
    """Every rate's two sums over the rows of a batch."""
    return {
        name: [jnp.stack([top @ weight, bottom @ weight]) for _, top, bottom in rates]
        for name, rates in measures.items()
    }


def evaluator_of(
    problem: Problem,
    like: Rows | Columns,
    total: Callable[[], int],
    sums: Callable[[Array], EvaluatedSums],
    jacobian: Callable[[Array], Any],
) -> Evaluator:
    """An evaluator from functions that add up over rows, which may be anywhere.

    `like` has the shapes of their columns; `total`, called after `sums`, is the number of rows
    that the sums are over.
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
                out[f"{prefix}_{name}"] = float(
                    sum(
                        a * top / bottom
                        for a, (top, bottom) in zip(weights()[name], pairs, strict=True)
                    )
                )
        return out

    def row(w: Array) -> dict[str, Any]:
        own = problem.model(w)
        w = problem.extended(own)
        found = sums(w)
        means = jnp.asarray(found.terms) / total()
        values = np.array(problem.values(means, jnp.asarray(float(w @ w))), float)
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
        slopes = problem.combine @ np.asarray(jacobian(w), float) / total()
        return slopes + 2 * problem.known[:, None] * np.asarray(w, float)

    def over(other: Rows | Columns) -> Evaluator:
        raise TypeError("these rows are not in this process: build another evaluator")

    return Evaluator(row, gradients, over)


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


def training(train: Rows | Columns) -> Batch:
    """All training rows, each with its client's number; rows without a client have weight 0."""
    if isinstance(train, Columns):
        return everything(train.columns, np.zeros(train.total, np.int32))
    owners = train.owners()
    return everything(train.columns, owners, owners >= 0)


def held_out(test: Mapping[str, np.ndarray] | None) -> Batch | None:
    """Held-out rows; they belong to no client. None where there are none."""
    if test is None or not len(test["x"]):
        return None
    return everything(test, np.full(len(test["x"]), -1, np.int32))


def everything(
    columns: Mapping[str, Any], owners: np.ndarray, counted: np.ndarray | bool = True
) -> Batch:
    """The columns, not copied, with the clients and the weights of the rows."""
    weight = np.broadcast_to(np.asarray(counted, np.float32), owners.shape)
    return on_device({**columns, "client": owners, "weight": weight})


def _over(rows: Batch, part: Callable[[Batch], Any]) -> Any:
    """The sum of part(chunk) over chunks of the rows; the last one overlaps the one before it."""
    count = len(rows["weight"])
    size = min(CHUNK, count)

    def at(begin: Array) -> Any:
        start = jnp.minimum(begin, count - size)
        chunk = {k: jax.lax.dynamic_slice_in_dim(v, start, size) for k, v in rows.items()}
        fresh = jnp.arange(size) >= begin - start
        return part(chunk | {"weight": jnp.where(fresh, chunk["weight"], 0)})

    return summed(at, jnp.arange(0, count, size))


def state_row(state: State) -> dict[str, Any]:
    """The server's own numbers of a round."""
    return {
        "round": int(state.round),
        "slack": [float(value) for value in state.slack],
        "multipliers": [float(value) for value in state.multipliers],
    }
