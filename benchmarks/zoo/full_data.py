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


class FullData:
    """The functions of a problem; make and use it inside `jax.enable_x64(True)`."""

    def __init__(self, problem: Any, clients: Any) -> None:
        rows = rows_of(clients)
        combine, known = jnp.asarray(problem.combine), jnp.asarray(problem.known)
        limits = jnp.asarray(np.concatenate([[0.0], problem.limits]))

        def values(w: Any) -> Any:
            means = problem.terms(w, rows).mean(axis=1)
            return combine @ means + known * (w @ w) - limits

        def lagrangian(w: Any, nu: Any, c: Any) -> Any:
            f = values(w)
            push = jnp.maximum(0, nu + c * f[1:])
            return f[0] + jnp.sum((push**2 - nu**2) / (2 * c))

        def both(w: Any) -> Any:
            f, pull = jax.vjp(values, w)
            return f, jax.lax.map(lambda v: pull(v)[0], jnp.eye(len(f)))

        self._both = remembered(jax.jit(both))
        self._lagrangian = jax.jit(jax.value_and_grad(lagrangian))

    def __call__(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F_0..F_M (limits subtracted) and their gradients, (M+1, d)."""
        return self._both(w)

    def lagrangian(self, w: np.ndarray, nu: np.ndarray, c: np.ndarray) -> tuple[float, np.ndarray]:
        """F_0 + sum_m (max(0, nu_m + c_m F_m)^2 - nu_m^2) / (2 c_m), and its gradient."""
        value, slope = self._lagrangian(w, nu, c)
        return float(value), np.asarray(slope)


def remembered(at: Callable[[np.ndarray], Any]) -> Function:
    """The same function as numpy arrays; the last result is kept for solvers that ask twice."""
    last: list[Any] = [None, None]

    def again(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if last[0] is None or not np.array_equal(last[0], w):
            last[:] = w.copy(), tuple(np.asarray(part) for part in at(w))
        return last[1]

    return again


def prices(
    values: np.ndarray, slopes: np.ndarray, scale: np.ndarray, near: float = 1e-2
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
