"""Reference optima on the full data: `python benchmarks/zoo/reference.py [NAME ...]`.

Small smooth problems are solved by SLSQP, networks by L-BFGS on an augmented Lagrangian, both in
double precision and from several starts; problems with rates by the search in `rate_search.py`. For
limits that cannot be kept, the smallest worst violation is found, which proves it. The results are
in references.json; a reference that is not exact is replaced only by a better one.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from full_data import FullData, prices
from problems import CASES, Case
from rate_search import search
from solvers import augmented, feasible_end, least_violation, scales, slsqp, warm_start

import fedssca

PLACE = Path(__file__).parent / "references.json"


def stored() -> dict[str, Any]:
    """All references that have been found."""
    return json.loads(PLACE.read_text()) if PLACE.exists() else {}


def reference(name: str) -> dict[str, Any]:
    """The reference of a case; {} if it has not been found yet."""
    return stored().get(CASES[name].same_as or name, {})


def best_of(case: Case, ends: list[np.ndarray]) -> dict[str, Any]:
    """The best feasible one of the points where solvers ended; inside `jax.enable_x64(True)`."""
    problem = case.problem
    at, tried, best = FullData(problem, case.clients), [], None
    for end in ends:
        w = feasible_end(at, end, problem)
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
    size = np.linalg.norm(at(np.asarray(problem.start, np.float64))[1][0])
    return {
        "objective": float(f[0]),
        "prices": nu.tolist() if case.prices else None,
        "worst": float(f[1:].max(initial=-np.inf)) if problem.constraints else None,
        "residual": rest / float(size),
        "exact": case.exact,
        "starts": tried,
    }


def smooth(cases: list[Case]) -> dict[str, Any]:
    """A small smooth problem by SLSQP."""
    problem = cases[0].problem
    with jax.enable_x64(True):
        at = FullData(problem, cases[0].clients)
        starts = [np.asarray(case.problem.start, np.float64) for case in cases]
        if np.array_equal(starts[0], starts[-1]):
            size = np.abs(starts[0]).mean() + 0.1
            draws = [
                np.random.default_rng(k).normal(size=len(starts[0])) for k in range(len(cases))
            ]
            starts[1:] = [starts[0] + size * draw for draw in draws[1:]]
        return best_of(cases[0], [slsqp(at, start, problem) for start in starts])


def network(cases: list[Case]) -> dict[str, Any]:
    """A network by an augmented Lagrangian on all rows, once more after Adam on batches."""
    first = cases[0]
    warm, nu = warm_start(first.problem, first.clients, 0)
    with jax.enable_x64(True):
        at = FullData(first.problem, first.clients)
        starts = [np.asarray(case.problem.start, np.float64) for case in cases]
        ends = [augmented(at, start, first.problem) for start in starts]
        return best_of(first, [*ends, augmented(at, warm, first.problem, nu)])


def find(name: str, count: int = 3) -> dict[str, Any]:
    """Compute the reference of one case from `count` starts."""
    cases = [CASES[name].build(seed) for seed in range(count)]
    first = cases[0]
    if not CASES[name].feasible:
        with jax.enable_x64(True):
            at = FullData(first.problem, first.clients)
            start = np.asarray(first.problem.start, np.float64)
            return {"least_violation": least_violation(at, start, first.problem)}
    if first.search == "zero":
        return {"objective": 0.0, "prices": None, "exact": True, "unit": first.unit}
    return {"rates": search, "slsqp": smooth, "augmented": network}[first.search](cases)


def main() -> None:
    args = argparse.ArgumentParser(description="Compute reference optima on the full data.")
    args.add_argument("names", nargs="*", help="cases (default: those without a reference)")
    args.add_argument("--large", action="store_true", help="include the large cases")
    args.add_argument("--starts", type=int, default=3)
    args.add_argument(
        "--forget", action="store_true", help="do not keep a better point from before"
    )
    said = args.parse_args()
    known = stored()
    open_ = [
        n
        for n, e in CASES.items()
        if n not in known and not e.same_as and (said.large or not e.large)
    ]
    for name in said.names or open_:
        begun = time.perf_counter()
        try:
            found = find(name, said.starts)
        except (RuntimeError, fedssca.UserError) as error:
            print(f"{name}: {error}", flush=True)
            continue
        before = stored().get(name, {})
        if not said.forget and found.get("exact") is False and "objective" in before:
            found = min(found, before, key=lambda one: one["objective"])
        PLACE.write_text(json.dumps(dict(sorted((stored() | {name: found}).items())), indent=1))
        said_ = {k: v for k, v in found.items() if k != "prices"}
        shown = [round(v, 5) for v in found.get("prices") or [] if v > 1e-9][:5]
        print(f"{name}: {said_} prices {shown} {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
