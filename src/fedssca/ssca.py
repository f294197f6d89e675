"""Mini-batch stochastic successive convex approximation: Algorithms 1-4 of the paper.

One round t = 1, 2, ..., T-1:

    every client i:  q_i = statistics of its batch at w(t)                     (`Surrogate.message`)
    server:          Q(t) = (1 - rho(t)) Q(t-1) + rho(t) sum_i q_i,  Q(0) = 0
                     wbar = argmin Fbar_0 + c sum_m s_m  s.t.  Fbar_m <= s_m, s >= 0   (`solver`)
                     w(t+1) = (1 - gamma(t)) w(t) + gamma(t) wbar

Algorithm 1 is this with clients that hold rows and no constraint, Algorithm 2 with constraints;
Algorithms 3 and 4 are the same for clients that hold columns. Nothing here differs between them:
who computes which block of q is the runtime's matter, how many constraints there are the solver's.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.algorithm import Algorithm, Message, Request, State, publish, start
from fedssca.errors import UserError
from fedssca.problem import Array, Batch, Problem, Terms
from fedssca.schedule import Schedule, broken_conditions
from fedssca.solver import Quadratic, Solution, lemma1, solve
from fedssca.surrogate import Surrogate, first_order

__all__ = ["ssca"]


class Memory(NamedTuple):
    """The averaged statistics and where the penalty continuation stands."""

    average: Any
    stage: Array
    since: Array


def ssca(
    problem: Problem,
    *,
    batch: int,
    rho: Schedule,
    gamma: Schedule,
    tau: float = 0.1,
    surrogate: Surrogate | None = None,
    penalty: float | Sequence[float] = 1e5,
    patience: int = 100,
) -> Algorithm:
    """Algorithms 1-4 with the given surrogate (default: the paper's first-order one with `tau`).

    `penalty` is c, or the continuation c_1 < c_2 < ... of Theorems 2 and 4: the next one is taken
    when a stage has lasted `patience` rounds and some slack is still positive.
    """
    family = first_order(problem, tau) if surrogate is None else surrogate
    stages = np.atleast_1d(np.asarray(penalty, float))
    if not (stages > 0).all() or not (np.diff(stages) > 0).all():
        raise UserError(f"penalty = {penalty}: it must be positive, and a list must increase")
    if broken := broken_conditions(rho, gamma):
        warnings.warn(
            "convergence is not guaranteed, the step sizes break: " + "; ".join(broken),
            stacklevel=2,
        )

    def init(w: Array) -> State:
        zero = jnp.zeros((), jnp.int32)
        return start(problem, w, Memory(family.zero(w), zero, zero))

    def reply(terms: Terms, request: Request, batch: Batch) -> Message:
        return family.message(terms, request.w, batch)

    def update(state: State, total: Message) -> State:
        w, memory, t = state.w, state.memory, state.round + 1
        rho_t, gamma_t = rho(t).astype(w.dtype), gamma(t).astype(w.dtype)
        average = jax.tree.map(
            lambda old, new: (1 - rho_t) * old + rho_t * new,
            memory.average,
            family.recentre(w, total),
        )
        c = jnp.asarray(stages, w.dtype)[memory.stage]
        best = minimise(problem, family.function(average), c)
        stuck = (memory.since + 1 >= patience) & jnp.any(best.slack > 1e-6)
        onward = stuck & (memory.stage + 1 < len(stages))
        return State(
            round=t,
            w=(1 - gamma_t) * w + gamma_t * best.w,
            memory=Memory(average, memory.stage + onward, jnp.where(onward, 0, memory.since + 1)),
            slack=best.slack,
            multipliers=best.multipliers,
        )

    return Algorithm("ssca", batch, 1, init, publish, reply, update)


def minimise(problem: Problem, surrogates: Quadratic, penalty: Array) -> Solution:
    """The round's convex problem: by Lemma 1 (min |w|^2, one constraint) or by the dual."""
    objective = jax.tree.map(lambda leaf: leaf[0], surrogates)
    constraints = jax.tree.map(lambda leaf: leaf[1:], surrogates)
    norm_only = not problem.combine[0].any() and problem.known[0] == 1.0
    if norm_only and problem.constraints == 1 and surrogates.curvature.ndim == 1:
        return lemma1(constraints, penalty)
    return solve(objective, constraints, penalty)
