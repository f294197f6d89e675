"""F_0..F_M and their gradients over all training rows, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

from fedssca.evaluate.evaluator import training

Function = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""w -> F_0..F_M (limits subtracted) and their gradients, (M+1, d)."""


def rows_of(clients: Any) -> dict[str, Any]:
    """All training rows, floating-point columns in double precision."""
    return {
        name: jnp.asarray(v, jnp.float64) if np.asarray(v).dtype.kind == "f" else jnp.asarray(v)
        for name, v in training(clients).items()
    }


def full_data(problem: Any, clients: Any) -> Function:
    """The functions of a problem; call it and use it inside `jax.enable_x64(True)`."""
    rows = rows_of(clients)
    limits = np.concatenate([[0.0], problem.limits])

    @jax.jit
    def both(w: Any) -> Any:
        means, pull = jax.vjp(lambda w: problem.terms(w, rows).mean(axis=1), w)
        return means, jax.lax.map(lambda v: pull(v)[0], jnp.eye(len(means)))

    def at(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        means, slopes = (np.asarray(a) for a in both(jnp.asarray(w)))
        values = problem.combine @ means + problem.known * (w @ w) - limits
        return values, problem.combine @ slopes + 2 * problem.known[:, None] * w

    return remembered(at)


def remembered(at: Function) -> Function:
    """The same function; the last result is kept, because solvers ask for values and gradients."""
    last: list[Any] = [None, None]

    def again(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if last[0] is None or not np.array_equal(last[0], w):
            last[:] = w.copy(), at(w)
        return last[1]

    return again


def prices(
    values: np.ndarray, slopes: np.ndarray, scale: np.ndarray, near: float = 1e-4
) -> tuple[np.ndarray, float]:
    """Least-squares multipliers of the active limits, and |grad L|, L the Lagrangian.

    A limit is active if F_m > -near * scale_m.
    """
    active = values[1:] > -near * scale
    found = np.zeros(len(active))
    if active.any():
        own = np.linalg.norm(slopes[1:][active], axis=1) + 1e-300
        found[active] = nnls((slopes[1:][active] / own[:, None]).T, -slopes[0])[0] / own
    return found, float(np.linalg.norm(slopes[0] + found @ slopes[1:]))
