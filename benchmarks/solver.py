"""Time of one round's problem at d = 101,632 weights and M = 5 limits: ours against Clarabel.

Run: python benchmarks/solver.py [repeats] [scalar] [diagonal]; scalar alone is the default, since
diagonal curvature needs a cone for each limit, which takes Clarabel far longer. The two take
turns, so that the machine's moods hit both alike. Compiling (ours) and cvxpy's canonicalisation
(theirs) are paid once, before the clock.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import cvxpy as cp
import jax
import numpy as np

from fedssca.methods.solver import Quadratic, solve

D, M, PENALTY = 101_632, 5, 100.0


def problem(rng: np.random.Generator, diagonal: bool) -> tuple[Quadratic, Quadratic]:
    ends = (D,) if diagonal else ()
    objective = Quadratic(np.zeros(()), 0.1 * rng.normal(size=D), rng.uniform(0.5, 1, ends))
    linear = rng.normal(size=(M, D))
    return objective, Quadratic(rng.normal(size=M) + 3, linear, rng.uniform(0.1, 1, (M, *ends)))


def convex_program(objective: Quadratic, constraints: Quadratic) -> cp.Problem:
    w, s, square = cp.Variable(D), cp.Variable(M, nonneg=True), cp.Variable()
    if objective.curvature.ndim:
        squares = [cp.sum_squares(cp.multiply(np.sqrt(a), w)) for a in constraints.curvature]
        cost, limits = cp.sum_squares(cp.multiply(np.sqrt(objective.curvature), w)), []
    else:
        # One cone for all limits: kinder to Clarabel than one each.
        squares = [a * square for a in constraints.curvature]
        cost, limits = objective.curvature * square, [cp.sum_squares(w) <= square]
    limits += [
        constraints.constant[m] + constraints.linear[m] @ w + squares[m] <= s[m] for m in range(M)
    ]
    cost += objective.constant + objective.linear @ w + PENALTY * cp.sum(s)
    return cp.Problem(cp.Minimize(cost), limits)


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main(repeats: int, kinds: list[str]) -> None:
    jax.config.update("jax_enable_x64", True)
    print(f"d = {D:,}, M = {M}, c = {PENALTY:g}, medians of {repeats}")
    print(
        f"{'curvature':<10} {'ours':>10} {'Clarabel':>10} {'ratio':>7} {'relative difference':>20}"
    )
    ours = jax.jit(solve)
    for kind in kinds:
        objective, constraints = problem(np.random.default_rng(0), kind == "diagonal")
        args = jax.device_put((objective, constraints, PENALTY))
        program = convex_program(objective, constraints)
        jax.block_until_ready(ours(*args))
        program.solve(solver=cp.CLARABEL)
        mine, theirs = [], []
        for _ in range(repeats):
            mine.append(timed(lambda args=args: jax.block_until_ready(ours(*args))))
            # The solver's own clock: cvxpy's overhead in Python is not Clarabel's fault.
            program.solve(solver=cp.CLARABEL)
            theirs.append(program.solver_stats.solve_time)
        answer = ours(*args)
        value = float(objective_value(objective, answer.w) + PENALTY * answer.slack.sum())
        a, b = statistics.median(mine), statistics.median(theirs)
        difference = abs(value - program.value) / max(1, abs(program.value))
        print(
            f"{kind:<10} {a * 1e3:>7.1f} ms {b * 1e3:>7.0f} ms {b / a:>6.0f}x {difference:>20.1e}"
        )


def objective_value(objective: Quadratic, w: jax.Array) -> jax.Array:
    return Quadratic(*map(jax.numpy.asarray, objective))(w)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2:] or ["scalar"])
