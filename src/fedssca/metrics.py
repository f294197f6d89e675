"""What a run reports: F_m over all data, rates, KKT residual, bytes on the wire."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

from fedssca.algorithm import Algorithm, State
from fedssca.data.split import Columns, Rows
from fedssca.memory import on_device, summed
from fedssca.problem import Array, Batch, Problem

__all__ = ["Evaluator", "Traffic", "evaluator", "kkt_residual", "traffic"]

CHUNK = 4096


class Evaluator(NamedTuple):
    """Full passes over the data in chunks, compiled once."""

    row: Callable[[Array], dict[str, Any]]
    """w -> objective, constraints, norm_sq, train_* and test_* rates."""
    gradients: Callable[[Array], np.ndarray]
    """w -> gradients of F_0..F_M over all training rows, (M+1, d)."""
    over: Callable[[Rows | Columns], Evaluator]
    """The same passes, compiled once, over other training rows of the same shape."""


def evaluator(
    problem: Problem, train: Rows | Columns, test: Mapping[str, np.ndarray] | None
) -> Evaluator:
    """F_m and the problem's measures over all training rows, and the measures on `test`."""
    first = _training(train)
    held = _all(test, np.full(len(test["x"]), -1, np.int32)) if test and len(test["x"]) else None

    @jax.jit
    def sums(w: Array, rows: Batch) -> tuple[Array, dict[str, list[Array]]]:
        return _over(rows, lambda chunk: part(w, chunk))

    def part(w: Array, chunk: Batch) -> tuple[Array, dict[str, list[Array]]]:
        weight = chunk["weight"].astype(w.dtype)
        return problem.terms(w, chunk) @ weight, {
            name: [jnp.stack([top @ weight, bottom @ weight]) for _, top, bottom in rates]
            for name, rates in problem.measure(w, chunk).items()
        }

    @functools.cache
    def weights() -> dict[str, list[float]]:
        """The rates' weights: plain numbers, found without computing anything."""
        found: dict[str, list[float]] = {}

        def look(w: Array, chunk: Batch) -> Array:
            found.update({k: [a for a, _, _ in v] for k, v in problem.measure(w, chunk).items()})
            return w

        jax.eval_shape(look, problem.start, first)
        return found

    def named(prefix: str, rates: dict[str, list[Array]]) -> dict[str, float]:
        """Sums of rates; one whose denominator is empty is left out."""
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

    @jax.jit
    def jacobian(w: Array, rows: Batch) -> Array:
        return _over(rows, lambda chunk: jax.jacrev(lambda v: part(v, chunk)[0])(w))

    def row(own: Batch, total: int, w: Array) -> dict[str, Any]:
        means, rates = sums(w, own)
        norm_sq = float(w @ w)
        values = np.asarray(problem.values(means / total, jnp.asarray(norm_sq)), float)
        out: dict[str, Any] = {
            "objective": float(values[0]),
            "constraints": [float(value) for value in values[1:]],
            "norm_sq": norm_sq,
        }
        out |= named("train", rates)
        if held is not None:
            out |= named("test", sums(w, held)[1])
        return out

    def gradients(own: Batch, total: int, w: Array) -> np.ndarray:
        rows = problem.combine @ np.asarray(jacobian(w, own), float) / total
        return rows + 2 * problem.known[:, None] * np.asarray(w, float)

    def on(own: Batch, total: int) -> Evaluator:
        return Evaluator(
            functools.partial(row, own, total),
            functools.partial(gradients, own, total),
            lambda other: on(_training(other), other.total),
        )

    return on(first, train.total)


def _training(train: Rows | Columns) -> Batch:
    """All training rows, each with its client's number; rows of nobody count nothing."""
    if isinstance(train, Columns):
        return _all(train.columns, np.zeros(train.total, np.int32))
    owners = train.owners()
    return _all(train.columns, owners, owners >= 0)


def _all(
    columns: Mapping[str, Any], owners: np.ndarray, counted: np.ndarray | bool = True
) -> Batch:
    """Columns where they lie, with the rows' clients and weights."""
    weight = np.broadcast_to(np.asarray(counted, np.float32), owners.shape)
    return on_device({**columns, "client": owners, "weight": weight})


def _over(rows: Batch, part: Callable[[Batch], Any]) -> Any:
    """The sum of part(chunk) over chunks of the rows; the last one reaches back to fill up."""
    count = len(rows["weight"])
    size = min(CHUNK, count)

    def at(begin: Array) -> Any:
        start = jnp.minimum(begin, count - size)
        chunk = {k: jax.lax.dynamic_slice_in_dim(v, start, size) for k, v in rows.items()}
        fresh = jnp.arange(size) >= begin - start
        return part(chunk | {"weight": jnp.where(fresh, chunk["weight"], 0)})

    return summed(at, jnp.arange(0, count, size))


def kkt_residual(gradients: np.ndarray, values: np.ndarray) -> tuple[float, np.ndarray]:
    """How far w is from a KKT point, and the multipliers nu >= 0 that fit best.

    The largest of |grad F_0 + sum nu_m grad F_m| / max(1, |grad F_0|), of the violations F_m > 0,
    and of the complementarities nu_m |F_m| / (1 + nu_m). The nu solve a least-squares problem in
    which an inactive constraint pays for its multiplier.
    """
    objective, others = gradients[0], gradients[1:]
    scale = max(1.0, float(np.linalg.norm(objective)))
    if len(others) == 0:
        return float(np.linalg.norm(objective)) / scale, np.zeros(0)
    idle = np.diag(np.maximum(-values, 0.0) * np.linalg.norm(others, axis=1))
    matrix = np.concatenate([others.T, idle])
    basis, triangle = np.linalg.qr(np.concatenate([matrix, np.zeros((1, len(others)))]))
    target = -np.concatenate([objective, np.zeros(len(others) + 1)])
    nu, _ = nnls(triangle, basis.T @ target)
    stationarity = float(np.linalg.norm(objective + nu @ others)) / scale
    slackness = float(np.max(nu * np.abs(values) / (1 + nu)))
    return max(stationarity, float(np.maximum(values, 0).max()), slackness), nu


class Traffic(NamedTuple):
    """Bytes of one round, all clients together."""

    up: int
    down: int
    peer: int


def traffic(problem: Problem, clients: Rows | Columns, algorithm: Algorithm) -> Traffic:
    """What one round sends, from the shapes of its messages alone (nothing is computed)."""
    w = jax.ShapeDtypeStruct(problem.start.shape, problem.start.dtype)
    batch = _batch_shape(clients, algorithm, w.dtype)

    asked = jax.eval_shape(lambda w: algorithm.request(algorithm.init(w)), w)._replace(turnout=())
    message = jax.eval_shape(lambda r, b: algorithm.reply(problem.terms, r, b), asked, batch)
    if isinstance(clients, Rows):
        asked_of = algorithm.cohort.size if algorithm.cohort else clients.count
        return Traffic(asked_of * _bytes(message), asked_of * _bytes(asked), 0)
    assert problem.vertical is not None
    split, count, rows = problem.vertical, clients.count, algorithm.batch
    top = w.dtype.itemsize * len(split.blocks[0])
    down = count * (_bytes(asked) - _bytes(w) + 4 * rows + top) + _bytes(w) - top
    hs = [
        jax.eval_shape(
            h,
            jax.ShapeDtypeStruct((len(split.blocks[i + 1]),), w.dtype),
            jax.ShapeDtypeStruct((rows, len(split.features[i])), batch["x"].dtype),
        )
        for i, h in enumerate(split.locals)
    ]
    if clients.collection == "open":
        columns = {
            name: shape for name, shape in batch.items() if name not in ("x", "weight", "client")
        }
        raw = (
            {"x": batch["x"]}
            if split.linear
            else [
                jax.ShapeDtypeStruct((*h.shape, len(block)), w.dtype)
                for h, block in zip(hs, split.blocks[1:], strict=True)
            ]
        )
        return Traffic(_bytes(hs) + _bytes(raw) + _bytes(columns), down, 0)
    holder = clients.label_holder
    if holder is None:
        return Traffic(_bytes(message), down, (count - 1) * _bytes(hs))
    others = _bytes([h for i, h in enumerate(hs) if i != holder])
    return Traffic(_bytes(message), down, others * (1 + problem.combine.shape[1]))


def _batch_shape(clients: Rows | Columns, algorithm: Algorithm, dtype: Any) -> dict[str, Any]:
    rows = algorithm.batch * algorithm.steps
    shapes = {
        name: jax.ShapeDtypeStruct((rows, *column.shape[1:]), column.dtype)
        for name, column in clients.columns.items()
    }
    shapes["weight"] = jax.ShapeDtypeStruct((rows,), dtype)
    shapes["client"] = jax.ShapeDtypeStruct((rows,), np.int32)
    return shapes


def _bytes(tree: Any) -> int:
    return sum(int(np.prod(s.shape)) * s.dtype.itemsize for s in jax.tree.leaves(tree))


def state_row(state: State) -> dict[str, Any]:
    """The server's own numbers of a round."""
    return {
        "round": int(state.round),
        "slack": [float(value) for value in state.slack],
        "multipliers": [float(value) for value in state.multipliers],
    }
