"""Which parameters of a model are additive biases of its scores, found without data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.rounds.shapes import batch_shape

__all__ = ["biases"]


def biases(problem: Problem, like: Rows | Columns) -> np.ndarray | None:
    """The positions in w of additive biases of the scores; None if the model has none.

    w_j is a bias of class k if d scores[n, l] / d w_j = 1[l = k] for every row n. The product of a
    random matrix u with the Jacobian then has the entry sum_n u[n, k] at j, whatever w and x are.
    The positions of which this holds at three random (w, x, u) are returned. No data is used:
    `like` has the shapes of the columns.
    """
    scores = problem.scores
    if scores is None:
        return None
    batch, size = batch_shape(like, 4, problem.start.dtype), problem.dimension
    rng = np.random.default_rng(0)

    @jax.jit
    def product(w: Array, columns: Batch, u: Array) -> Array:
        return jax.vjp(lambda point: scores(point, columns), w)[1](u)[0]

    found = np.full(size, -1)
    for trial in range(3):
        columns = {name: _random(rng, column) for name, column in batch.items()}
        w = problem.start + jnp.asarray(0.1 * rng.standard_normal(size), problem.start.dtype)
        outputs = jax.eval_shape(scores, w, columns)
        u = rng.standard_normal(outputs.shape)
        try:
            slopes = np.asarray(product(w, columns, jnp.asarray(u, outputs.dtype)), float)
        except jax.errors.JaxRuntimeError:
            return None  # A model in a callback (PyTorch) that fails on random x.
        classes = _nearest(slopes, u.sum(axis=0))
        found = classes if trial == 0 else np.where(classes == found, found, -1)
    positions = np.flatnonzero(found >= 0)
    return positions if len(positions) else None


def _nearest(numbers: np.ndarray, among: np.ndarray) -> np.ndarray:
    """For each number the index of the equal one (up to rounding) in `among`; -1 without one."""
    order = np.argsort(among)
    right = np.clip(np.searchsorted(among[order], numbers), 1, len(among) - 1)
    ends = order[right - 1], order[right]
    near = np.where(*(np.abs(numbers - among[ends[0]]) < np.abs(numbers - among[ends[1]]), *ends))
    return np.where(np.abs(numbers - among[near]) < 1e-4, near, -1)


def _random(rng: np.random.Generator, column: jax.ShapeDtypeStruct) -> np.ndarray:
    """Random numbers of this shape; of whole numbers (bytes, indices) only 0 and 1."""
    if np.issubdtype(column.dtype, np.floating):
        return rng.standard_normal(column.shape).astype(column.dtype)
    return rng.integers(0, 2, column.shape).astype(column.dtype)
