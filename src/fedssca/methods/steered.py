"""SSCA on the Lagrangian, with multipliers set by measured values: one gradient for all limits.

The server publishes w(t) and the weights a = (1, nu) / (1 + sum nu). A client sends the values of
the constrained terms and ONE gradient, that of sum_m a_m F_m at w(t), so that a round costs the
same with one limit or a hundred. With g the sum of these gradients and tau_a = sum_m a_m tau_m,

    b(t) = (1 - rho(t)) b(t-1) + rho(t) (g - 2 tau_a w(t)),    b(0) = 0
    wbar = argmin b(t)'w + (tau_a + sum_m a_m known_m) |w|^2
    w(t+1) = (1 - gamma(t)) w(t) + gamma(t) wbar

which is Algorithm 1 (or 3) for the Lagrangian; then the values move the multipliers (`dual.steer`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp

from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request, State, first_state, shortened
from fedssca.methods.multipliers import MultiplierRule, MultiplierState, steer
from fedssca.methods.schedule import Schedule, warn_broken
from fedssca.methods.surrogate import mixed_gradient, per_term
from fedssca.problem.problem import Array, Batch, Problem, Terms

__all__ = ["SteeredMemory", "mixture", "opened", "steered_ssca"]


class SteeredMemory(NamedTuple):
    """The averaged gradient of the Lagrangian, and the state of the multipliers."""

    average: Array
    course: MultiplierState


def opened(
    problem: Problem, course: MultiplierRule, opening: Sequence[float]
) -> Callable[[Array], State]:
    """The function `init` of a steered method, with the first multipliers `opening`."""
    if len(opening) != problem.constraints or not all(nu > 0 for nu in opening):
        raise UserError(f"opening = {list(opening)}: give a positive number for each constraint")

    def init(w: Array) -> State:
        first = course.init(w)._replace(log_multiplier=jnp.log(jnp.asarray(opening, w.dtype)))
        return first_state(problem, w, SteeredMemory(jnp.zeros_like(w), first))

    return init


def mixture(state: State) -> Array:
    """The weights a = (1, nu) / (1 + sum nu) of F_0..F_M in the Lagrangian."""
    nu = jnp.exp(state.memory.course.log_multiplier)
    return jnp.concatenate([jnp.ones(1, nu.dtype), nu]) / (1 + nu.sum())


def steered_ssca(
    problem: Problem,
    *,
    batch: int,
    rounds: int,
    rho: Schedule,
    gamma: Schedule,
    tau: float | Sequence[float],
    opening: Sequence[float],
    penalty: float = 1e8,
) -> Algorithm:
    """SSCA with steered multipliers and one step per round; `calibrate` finds all of its numbers.

    `opening` are the first multipliers, `penalty` bounds them, `rounds` is T.
    """
    taus = per_term(problem, tau)
    warn_broken(rho, gamma)
    course = steer(problem, rounds, penalty=penalty)
    combine = problem.combine

    def request(state: State) -> Request:
        return Request(state.round + 1, state.w, mixture(state))

    def reply(terms: Terms, asked: Request, data: Batch) -> Message:
        return mixed_gradient(problem, terms, asked, data)

    def update(state: State, total: Message) -> State:
        w, t, a = state.w, state.round + 1, request(state).weights
        rho_t, gamma_t = rho(t).astype(w.dtype), gamma(t).astype(w.dtype)
        bend = a @ jnp.asarray(taus * combine.any(axis=1), w.dtype)
        fresh = total.vectors["gradient"] - 2 * bend * w
        average = (1 - rho_t) * state.memory.average + rho_t * fresh
        wbar = -0.5 / (bend + a @ jnp.asarray(problem.known, w.dtype)) * average
        measured = problem.measured(total.scalars, w)
        return State(
            round=t,
            w=shortened(state, (1 - gamma_t) * w + gamma_t * wbar),
            memory=SteeredMemory(average, course.step(state.memory.course, t, measured)),
            slack=jnp.maximum(measured, 0),
            multipliers=a[1:] / a[0],
            pace=state.pace,
        )

    init = opened(problem, course, opening)
    return Algorithm("ssca", batch, 1, init, request, reply, update, one_gradient=True)
