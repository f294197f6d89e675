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
from full_data import FullData, prices
from problems import CASES, Case
from rate_search import search
from solvers import augmented, feasible_end, least_violation, scales, slsqp

import fedssca

PLACE = Path(__file__).parent / "references.json"


def stored() -> dict[str, Any]:
    """All references that have been found."""
    return json.loads(PLACE.read_text()) if PLACE.exists() else {}


def reference(name: str) -> dict[str, Any]:
    """The reference of a case; {} if it has not been found yet."""
    return stored().get(CASES[name].same_as or name, {})


def solve(case: Case, starts: list[np.ndarray], feasible: bool) -> dict[str, Any]:
    """The best feasible point of several starts."""
    problem = case.problem
    at = FullData(problem, case.clients)
    if not feasible:
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
    if cases[0].search == "zero":
        return {"objective": 0.0, "prices": None, "exact": True, "unit": cases[0].unit}
    if cases[0].search == "rates":
        return search(cases)
    with jax.enable_x64(True):
        starts = [np.asarray(case.problem.start, np.float64) for case in cases]
        if np.array_equal(starts[0], starts[-1]):
            size = np.abs(starts[0]).mean() + 0.1
            draws = [np.random.default_rng(k).normal(size=len(starts[0])) for k in range(count)]
            starts[1:] = [starts[0] + size * draw for draw in draws[1:]]
        return solve(cases[0], starts, CASES[name].feasible)


def main() -> None:
    args = argparse.ArgumentParser(description="Compute reference optima on the full data.")
    args.add_argument("names", nargs="*", help="cases (default: those without a reference)")
    args.add_argument("--large", action="store_true", help="include the large cases")
    args.add_argument("--starts", type=int, default=3)
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
        PLACE.write_text(json.dumps(dict(sorted((stored() | {name: found}).items())), indent=1))
        said_ = {k: v for k, v in found.items() if k != "prices"}
        shown = [round(v, 5) for v in found.get("prices") or [] if v > 1e-9][:5]
        print(f"{name}: {said_} prices {shown} {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
