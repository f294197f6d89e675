"""Reference optima on the full data: `python benchmarks/zoo/reference.py [NAME ...]`.

Small smooth problems are solved by SLSQP, networks by L-BFGS on an augmented Lagrangian, both in
double precision and from several starts; problems with rates by the search in `rate_search.py`. For
limits that cannot be kept, the smallest worst violation is found, which proves it. The results are
in references.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from full_data import Function, full_data, prices
from problems import CASES, Case
from scipy.optimize import minimize

import fedssca

PLACE = Path(__file__).parent / "references.json"


def stored() -> dict[str, Any]:
    """All references that have been found."""
    return json.loads(PLACE.read_text()) if PLACE.exists() else {}


def reference(name: str) -> dict[str, Any]:
    """The reference of a case; {} if it has not been found yet."""
    same = CASES[name].build(0).same_as
    return stored().get(same or name, {})


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
    at: Function, start: np.ndarray, problem: Any, outer: int = 12, inner: int = 400
) -> np.ndarray:
    """L-BFGS on F_0 + sum_m (max(0, nu_m + c_m F_m)^2 - nu_m^2) / (2 c_m), nu and c updated."""
    values, _ = at(start)
    sizes = scales(problem)
    c = max(abs(values[0]), 1e-3) / sizes**2
    nu, w, before = np.zeros(problem.constraints), start, np.full(problem.constraints, np.inf)

    for k in range(outer):

        def lagrangian(w: np.ndarray, nu: np.ndarray = nu, c: np.ndarray = c) -> Any:
            f, g = at(w)
            push = np.maximum(0, nu + c * f[1:])
            return f[0] + np.sum((push**2 - nu**2) / (2 * c)), g[0] + push @ g[1:]

        options = {"maxiter": inner * (1 + (k == outer - 1)), "maxcor": 30, "ftol": 1e-13}
        w = minimize(lagrangian, w, jac=True, method="L-BFGS-B", options=options).x
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


def solve(case: Case, starts: list[np.ndarray]) -> dict[str, Any]:
    """The best feasible point of several starts."""
    problem = case.problem
    at = full_data(problem, case.clients)
    if not case.feasible:
        return {"least_violation": least_violation(at, starts[0], problem)}
    method = augmented if case.search == "augmented" and problem.constraints else slsqp
    tried, best = [], None
    for start in starts:
        w = feasible_end(at, method(at, start, problem), problem)
        f, g = at(w)
        worst = float((f[1:] / scales(problem)).max(initial=-np.inf))
        if np.isfinite(f).all() and worst < 1e-6:
            tried.append(float(f[0]))
            if best is None or f[0] < best[0][0]:
                best = f, g
    if best is None:
        raise RuntimeError("no start ended at a feasible point")
    f, g = best
    nu, rest = prices(f, g, scales(problem))
    return {
        "objective": float(f[0]),
        "prices": nu.tolist() if case.prices else None,
        "worst": float(f[1:].max(initial=-np.inf)) if problem.constraints else None,
        "residual": rest / float(np.linalg.norm(at(starts[0])[1][0])),
        "exact": case.exact,
        "starts": tried,
    }


def find(name: str, count: int = 3) -> dict[str, Any]:
    """Compute the reference of one case."""
    cases = [CASES[name].build(seed) for seed in range(count)]
    if cases[0].search == "rates":
        from rate_search import search

        return search(cases)
    with jax.enable_x64(True):
        starts = [np.asarray(case.problem.start, np.float64) for case in cases]
        if np.array_equal(starts[0], starts[-1]):
            size = np.abs(starts[0]).mean() + 0.1
            draws = [np.random.default_rng(k).normal(size=len(starts[0])) for k in range(count)]
            starts[1:] = [starts[0] + size * draw for draw in draws[1:]]
        return solve(cases[0], starts)


def main() -> None:
    args = argparse.ArgumentParser(description="Compute reference optima on the full data.")
    args.add_argument("names", nargs="*", help="cases (default: those without a reference)")
    args.add_argument("--large", action="store_true", help="include the large cases")
    args.add_argument("--starts", type=int, default=3)
    said = args.parse_args()
    known = stored()
    open_ = [n for n, e in CASES.items() if n not in known and (said.large or not e.large)]
    for name in said.names or open_:
        begun = time.perf_counter()
        try:
            if CASES[name].build(0).same_as:
                continue
            found = find(name, said.starts)
        except (RuntimeError, fedssca.UserError) as error:
            print(f"{name}: {error}", flush=True)
            continue
        PLACE.write_text(json.dumps(dict(sorted((stored() | {name: found}).items())), indent=1))
        said_ = {k: v for k, v in found.items() if k != "prices"}
        shown = [round(v, 5) for v in found.get("prices") or [] if v > 1e-9][:5]
        print(f"{name}: {said_} prices {shown} {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
