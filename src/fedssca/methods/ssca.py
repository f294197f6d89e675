"""Mini-batch stochastic successive convex approximation: Algorithms 1-4 of the paper.

One round t = 1, 2, ..., T-1:

    every client i:  q_i = statistics of its batch at w(t)                     (`Surrogate.message`)
    server:          Q(t) = (1 - rho(t)) Q(t-1) + rho(t) sum_i q_i,  Q(0) = 0
                     wbar = argmin Fbar_0 + c sum_m s_m  s.t.  Fbar_m <= s_m, s >= 0     (`dual`)
                     w(t+1) = (1 - gamma(t)) w(t) + gamma(t) wbar

Algorithm 1 is this for clients that hold rows, without constraints; Algorithm 2 is the same with
constraints. Algorithms 3 and 4 are the same for clients that hold columns. The four do not differ
here: the runtime decides who computes which block of q, and the solver takes any number of
constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from fedssca.methods.algorithm import (
    Algorithm,
    Message,
    Request,
    State,
    first_state,
    publish,
    shortened,
)
from fedssca.methods.multipliers import Dual, RoundProblem, exact_penalty
from fedssca.methods.schedule import Schedule, warn_broken
from fedssca.methods.surrogate import Surrogate, first_order
from fedssca.problem.problem import Array, Batch, Problem, Terms

__all__ = ["ssca"]


class SscaMemory(NamedTuple):
    """The averaged statistics Q(t), and what the multipliers' rule remembers."""

    average: Any
    dual: Any


def ssca(
    problem: Problem,
    *,
    batch: int,
    rho: Schedule,
    gamma: Schedule,
    tau: float | Sequence[float] = 0.1,
    surrogate: Surrogate | None = None,
    penalty: float | Sequence[float] = 1e5,
    dual: Dual | None = None,
) -> Algorithm:
    """Algorithms 1-4 as in the paper, unless an argument replaces a part.

    `surrogate` replaces the first-order one with `tau`; `dual` replaces the paper's exact penalty
    c = `penalty` (a list is the continuation c_1 < c_2 < ... of Theorems 2 and 4).
    """
    family = first_order(problem, tau) if surrogate is None else surrogate
    rule = exact_penalty(problem, penalty) if dual is None else dual
    warn_broken(rho, gamma)

    def init(w: Array) -> State:
        return first_state(problem, w, SscaMemory(family.zero(w), rule.init(w)))

    def reply(terms: Terms, request: Request, batch: Batch) -> Message:
        return family.message(terms, request.w, batch)

    def update(state: State, total: Message) -> State:
        w, t = state.w, state.round + 1
        rho_t, gamma_t = rho(t).astype(w.dtype), gamma(t).astype(w.dtype)
        average = jax.tree.map(
            lambda old, new: (1 - rho_t) * old + rho_t * new,
            state.memory.average,
            family.recentre(w, total),
        )
        measured = problem.measured(total.scalars, w)
        now = RoundProblem(t, w, family.function(average), measured, family.norm_objective)
        dual, best = rule.step(state.memory.dual, now)
        return State(
            round=t,
            w=shortened(state, (1 - gamma_t) * w + gamma_t * best.w),
            memory=SscaMemory(average, dual),
            slack=best.slack,
            multipliers=best.multipliers,
            pace=state.pace,
        )

    return Algorithm("ssca", batch, 1, init, publish, reply, update)
