"""The usual methods for the constrained problem, in the same loop and from the same messages.

For min F_0(w) s.t. F_m(w) <= 0, clients send what they send in SSCA (`surrogate.gradients`); the
server turns the F_m that a round's batches measured into weights a_0..a_M and takes a step

    g = sum_m a_m grad F_m(w(t)),    v <- momentum v + g,    w(t+1) = w(t) - rate(t) v

    quadratic penalty       a ~ (1, 2 c max(0, F_m))
    primal-dual             a ~ (1, nu_m),                     nu <- max(0, nu + dual_rate(t) F)
    augmented Lagrangian    a ~ (1, max(0, nu_m + c F_m)),     nu <- max(0, nu + dual_rate(t) F)
    switching               all on F_0 if the limits hold, else on the one broken most

For the first three "~" divides by the sum of the weights: g is the gradient of the (penalised)
Lagrangian over 1 + sum nu. It vanishes at the same points, and one rate serves whether multipliers
are near 0 or, with the norm as objective, near 1000. Terms known[m] |w|^2 enter values and
gradients exactly. All of it happens at the server, so parties may hold rows or columns alike.
Both penalties are biased by noise: F_m and grad F_m of a batch correlate, and max(0, .) is convex.

Sources: Courant (penalty); Arrow, Hurwicz, Uzawa, and Cotter et al. for networks (primal-dual);
Hestenes, Powell, Rockafellar, Bertsekas (augmented Lagrangian); Polyak, Lan and Zhou (switching).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.methods.algorithm import (
    Algorithm,
    Message,
    Request,
    State,
    first_state,
    publish,
    shortened,
)
from fedssca.methods.schedule import Schedule
from fedssca.methods.surrogate import gradients
from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.problem.programs import number

__all__ = ["augmented_lagrangian", "primal_dual", "quadratic_penalty", "switching"]


class DescentMemory(NamedTuple):
    """The server's momentum v, and sum_t rate(t) a(t), the total weight of each F_m so far."""

    v: Array
    given: Array


class DescentRound(NamedTuple):
    """What is known when the weights of a round are set."""

    t: Array
    values: Array
    """F_1..F_M at w(t), on the round's batches."""
    slopes: Array
    """grad F_0..F_M there, (M+1, d)."""
    multipliers: Array
    given: Array


Weigh: TypeAlias = Callable[[DescentRound], tuple[Array, Array]]
"""A method: the round's weights a_0..a_M, and nu(t+1) for the record and the next round."""


def quadratic_penalty(
    problem: Problem, *, batch: int, rate: Schedule, penalty: float, momentum: float = 0.0
) -> Algorithm:
    """SGD on F_0 + c sum_m max(0, F_m)^2, c = `penalty`, that is a_m ~ nu_m = 2 c max(0, F_m).

    It ends with active limits broken by nu_m / (2 c): only c -> inf keeps them.
    """
    _positive("penalty", penalty)

    def weigh(now: DescentRound) -> tuple[Array, Array]:
        nu = number(2 * penalty, now.values.dtype) * jnp.maximum(now.values, 0)
        return _shares(nu), nu

    return _descent("quadratic_penalty", problem, batch, rate, momentum, weigh)


def primal_dual(
    problem: Problem,
    *,
    batch: int,
    rate: Schedule,
    dual_rate: Schedule,
    momentum: float = 0.0,
    initial: float = 0.0,
) -> Algorithm:
    """Descent in w and ascent in nu on the Lagrangian F_0 + sum_m nu_m F_m, both every round.

    a_m ~ nu_m(t),    nu(t+1) = max(0, nu(t) + dual_rate(t) F(w(t))),    nu(1) = `initial`.
    """
    weigh = _ascent(dual_rate, 0.0)
    return _descent("primal_dual", problem, batch, rate, momentum, weigh, initial)


def augmented_lagrangian(
    problem: Problem,
    *,
    batch: int,
    rate: Schedule,
    dual_rate: Schedule,
    penalty: float,
    momentum: float = 0.0,
    initial: float = 0.0,
) -> Algorithm:
    """The method of multipliers with one step per round instead of a minimisation over w.

        F_0 + 1/(2c) sum_m (max(0, nu_m + c F_m)^2 - nu_m^2),    c = `penalty`,

    so a_m ~ max(0, nu_m(t) + c F_m), and nu moves as in `primal_dual`, with dual_rate(t) < c:
    the classical dual_rate = c assumes that w has been minimised over.
    """
    _positive("penalty", penalty)
    weigh = _ascent(dual_rate, penalty)
    return _descent("augmented_lagrangian", problem, batch, rate, momentum, weigh, initial)


def switching(
    problem: Problem, *, batch: int, rate: Schedule, tolerance: float = 0.0, momentum: float = 0.0
) -> Algorithm:
    """The switching subgradient method, with steps of length rate(t) as Polyak takes them.

        g = grad F_k / |grad F_k|,    k = 0 if all F_m <= `tolerance`, else the k of the largest F_m

    With noisy batches the test passes too often and F_m ends above its limit; a negative tolerance
    is a margin. The recorded multipliers are the sums of rate(t) / |grad F_m| over the rounds that
    were spent on F_m, divided by the same sum for F_0.
    """
    if not np.isfinite(tolerance):
        raise UserError(f"tolerance = {tolerance}: it must be finite")

    def weigh(now: DescentRound) -> tuple[Array, Array]:
        worst = jnp.argmax(now.values)
        k = jnp.where(now.values[worst] <= number(tolerance, now.values.dtype), 0, worst + 1)
        length = jnp.maximum(jnp.linalg.norm(now.slopes[k]), np.finfo(now.given.dtype).tiny)
        a = jnp.zeros_like(now.given).at[k].set(1 / length)
        given = now.given + rate(now.t).astype(a.dtype) * a
        return a, jnp.where(given[0] > 0, given[1:] / jnp.where(given[0] > 0, given[0], 1), 0)

    return _descent("switching", problem, batch, rate, momentum, weigh)


def _ascent(dual_rate: Schedule, penalty: float) -> Weigh:
    """Projected ascent in nu; the weights are max(0, nu + penalty * F)."""
    _positive("dual_rate.a", dual_rate.a)

    def weigh(now: DescentRound) -> tuple[Array, Array]:
        nu, f, up = now.multipliers, now.values, dual_rate(now.t).astype(now.values.dtype)
        pushed = nu + number(penalty, f.dtype) * f
        return _shares(jnp.maximum(pushed, 0)), jnp.maximum(nu + up * f, 0)

    return weigh


def _descent(
    name: str,
    problem: Problem,
    batch: int,
    rate: Schedule,
    momentum: float,
    weigh: Weigh,
    initial: float = 0.0,
) -> Algorithm:
    """The step that all share: see the module's formula."""
    if not problem.constraints:
        raise UserError(f"{name} needs constraints: without any, use algorithm 'sgd'")
    if not 0 <= momentum < 1:
        raise UserError(f"momentum = {momentum}: it must lie in [0, 1)")
    if not initial >= 0:
        raise UserError(f"initial = {initial}: multipliers must not be negative")
    _positive("rate.a", rate.a)

    def init(w: Array) -> State:
        memory = DescentMemory(jnp.zeros_like(w), jnp.zeros(problem.constraints + 1, w.dtype))
        first = first_state(problem, w, memory)
        return first._replace(multipliers=first.multipliers + initial)

    def reply(terms: Terms, request: Request, data: Batch) -> Message:
        return gradients(problem, terms, request.w, data)

    def update(state: State, total: Message) -> State:
        w, t, (v, given) = state.w, state.round + 1, state.memory
        combine, known = (jnp.asarray(a, w.dtype) for a in (problem.combine, problem.known))
        slopes = combine @ total.vectors["gradient"] + 2 * known[:, None] * w
        values = problem.measured(total.scalars, w)
        a, multipliers = weigh(DescentRound(t, values, slopes, state.multipliers, given))
        v, lr = number(momentum, w.dtype) * v + a @ slopes, rate(t).astype(w.dtype)
        slack = jnp.maximum(values, 0)
        memory = DescentMemory(v, given + lr * a)
        return State(t, shortened(state, w - lr * v), memory, slack, multipliers, state.pace)

    return Algorithm(name, batch, 1, init, publish, reply, update)


def _shares(nu: Array) -> Array:
    """(1, nu) / (1 + sum nu)."""
    return jnp.concatenate([jnp.ones(1, nu.dtype), nu]) / (1 + nu.sum())


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise UserError(f"{name} = {value}: it must be positive")
