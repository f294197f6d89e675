"""Solvers on the full data in double precision: SLSQP and an augmented Lagrangian with L-BFGS."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from full_data import Function
from scipy.optimize import minimize

from fedssca.evaluate.evaluator import training


def scales(problem: Any) -> np.ndarray:
    """The size of each limit, by which violations are judged."""
    return np.maximum(np.abs(problem.limits), 1e-2)


def slsqp(at: Function, start: np.ndarray, problem: Any) -> np.ndarray:
    """Sequential quadratic programming; without limits L-BFGS."""
    unit, sizes = max(1e-12, abs(at(start)[0][0])), scales(problem)
    options: dict[str, Any] = {"maxiter": 2000, "ftol": 1e-13}
    limits: Any = ()
    if problem.constraints:
        limits = {
            "type": "ineq",
            "fun": lambda w: -at(w)[0][1:] / sizes,
            "jac": lambda w: -at(w)[1][1:] / sizes[:, None],
        }
    else:
        options = {"maxiter": 5000, "ftol": 1e-14, "gtol": 1e-10, "maxcor": 50}
    return minimize(
        lambda w: at(w)[0][0] / unit,
        start,
        jac=lambda w: at(w)[1][0] / unit,
        method="SLSQP" if problem.constraints else "L-BFGS-B",
        constraints=limits,
        options=options,
    ).x


def warm_start(
    problem: Any, clients: Any, seed: int, steps: int = 8000, rows: int = 256, rate: float = 3e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Adam on the Lagrangian with batches of all rows; log nu_m moves with the sign of F_m.

    The noise of batches leads networks to better optima than descent on all rows does. Its rate
    falls to 0. Returns w and nu, from which `augmented` goes on.
    """
    data = training(clients)
    limits = jnp.asarray(np.concatenate([[0.0], problem.limits]), jnp.float32)
    combine, known = (jnp.asarray(a, jnp.float32) for a in (problem.combine, problem.known))
    sizes = jnp.asarray(np.maximum(scales(problem), 0.1), jnp.float32)
    count = len(data["y"])

    def values(w: Any, key: Any) -> Any:
        chosen = jax.random.randint(key, (min(rows, count),), 0, count)
        batch = {name: column[chosen] for name, column in data.items()}
        means = problem.terms(w, batch).mean(axis=1)
        return combine @ means + known * (w @ w) - limits

    def lagrangian(w: Any, nu: Any, key: Any) -> Any:
        f = values(w, key)
        return (f[0] + nu @ f[1:]) / (1 + nu.sum()), f[1:]

    def step(carry: Any, t: Any) -> Any:
        w, log_nu, mean, square, key = carry
        key, own = jax.random.split(key)
        slope, f = jax.grad(lagrangian, has_aux=True)(w, jnp.exp(log_nu), own)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        size = jnp.sqrt(square / (1 - 0.999 ** (t + 1))) + 1e-8
        w = w - rate * (1 - t / steps) * mean / (1 - 0.9 ** (t + 1)) / size
        log_nu = jnp.maximum(log_nu + 30 / steps * jnp.clip(f / sizes, -1, 1), -10.0)
        return (w, log_nu, mean, square, key), None

    w = jnp.asarray(problem.start)
    slopes = jax.jacrev(values)(w, jax.random.key(0))
    lengths = jnp.linalg.norm(slopes, axis=1) + 1e-12
    first = jnp.log(lengths[0] / lengths[1:])
    begin = (w, first, jnp.zeros_like(w), jnp.zeros_like(w), jax.random.key(seed))
    (w, log_nu, *_), _ = jax.jit(lambda c: jax.lax.scan(step, c, jnp.arange(steps)))(begin)
    return np.asarray(w, np.float64), np.exp(np.asarray(log_nu, np.float64))


def augmented(
    at: Any,
    start: np.ndarray,
    problem: Any,
    nu: np.ndarray | None = None,
    outer: int = 10,
    inner: int = 300,
) -> np.ndarray:
    """L-BFGS on an augmented Lagrangian, `at.lagrangian`, whose nu and c are updated."""
    values, _ = at(start)
    sizes = scales(problem)
    c = max(abs(values[0]), 1e-3) / np.maximum(sizes, 0.1) ** 2
    nu, w = np.zeros(problem.constraints) if nu is None else nu, start
    before = np.full(problem.constraints, np.inf)
    for k in range(outer):
        most, least = {0: (2 * inner, 1e-9), outer - 1: (5 * inner, 1e-13)}.get(k, (inner, 1e-10))
        options = {"maxiter": most, "maxfun": 2 * most, "maxcor": 30, "ftol": least}
        own = (nu, c)
        w = minimize(at.lagrangian, w, own, jac=True, method="L-BFGS-B", options=options).x
        f = at(w)[0][1:]
        nu = np.maximum(0, nu + c * f)
        broken = np.maximum(f, 0) / sizes
        c = np.where(broken > np.maximum(0.25 * before, 1e-7), 3 * c, c)
        before = broken
    return w


def feasible_end(at: Function, w: np.ndarray, problem: Any) -> np.ndarray:
    """Newton steps on the broken limits along their gradients: the last bits of a violation."""
    for _ in range(20):
        f, g = at(w)
        broken = f[1:] > 0
        if not broken.any():
            break
        rows = g[1:][broken]
        w = w - 1.000001 * np.linalg.lstsq(rows, f[1:][broken], rcond=None)[0]
    return w


def least_violation(at: Function, start: np.ndarray, problem: Any) -> float:
    """min over w of max_m F_m: above 0, the limits cannot be kept together."""
    sizes = scales(problem)
    first = np.append(start, (at(start)[0][1:] / sizes).max())
    last = np.append(np.zeros(len(start)), 1.0)
    limits = {
        "type": "ineq",
        "fun": lambda v: v[-1] - at(v[:-1])[0][1:] / sizes,
        "jac": lambda v: np.c_[-at(v[:-1])[1][1:] / sizes[:, None], np.ones(len(sizes))],
    }
    options = {"maxiter": 500, "ftol": 1e-10}
    found = minimize(
        lambda v: v[-1],
        first,
        jac=lambda v: last,
        method="SLSQP",
        constraints=limits,
        options=options,
    ).x
    return float(at(found[:-1])[0][1:].max())
