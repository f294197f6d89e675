"""Solvers on the full data in double precision: SLSQP and an augmented Lagrangian with L-BFGS."""

from __future__ import annotations

from typing import Any

import numpy as np
from full_data import Function
from scipy.optimize import minimize


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


def augmented(
    at: Any, start: np.ndarray, problem: Any, outer: int = 10, inner: int = 300
) -> np.ndarray:
    """L-BFGS on an augmented Lagrangian, `at.lagrangian`, whose nu and c are updated."""
    values, _ = at(start)
    sizes = scales(problem)
    c = max(abs(values[0]), 1e-3) / np.maximum(sizes, 0.1) ** 2
    nu, w, before = np.zeros(problem.constraints), start, np.full(problem.constraints, np.inf)
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
