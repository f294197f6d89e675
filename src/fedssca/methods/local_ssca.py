"""SSCA with E local steps per round: the same samples, fewer rounds.

The server publishes w(t), its averaged statistic b(t-1) and, with constraints, the weights a of the
Lagrangian. Client i starts there and takes E steps of the algorithm itself, each on a fresh batch
(g its mean gradient of sum_m a_m F_m at w_i; tau, known: the mixtures by a; kappa = tau + known):

    b_i <- (1 - rho) b_i + rho (g - 2 tau w_i)
    w_i <- (1 - gamma) w_i - gamma b_i / (2 kappa)

and sends N_i / N (w_i - w(t)), one vector as in FedAvg, and the mean values of the constrained
terms over its steps. The server moves to the mean of the models, w(t+1) = sum_i N_i / N w_i, and
computes the ONE gradient ghat that, taken in all E steps, leads from (w(t), b(t-1)) to w(t+1). The
steps are linear in the gradients with the same coefficients everywhere, so there is one, a weighted
mean of all gradients that the clients took, and b(t) is the statistic after these steps. A client
that knows (w(t), b(t-1)) and w(t+1) computes b(t) in the same way (`follow`).

With E = 1 it is Algorithm 1 (with constraints: `steered_ssca`), ghat being the batch gradient. As
gamma(t) -> 0 the clients stay close to w(t) and ghat tends to a batch gradient there,
which is what the theorems ask of a surrogate: unlike a fixed local rate, no drift is left. A `warm`
rho (1/t while that is more) counts local steps, not rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.methods.algorithm import (
    Algorithm,
    LocalChange,
    Message,
    Request,
    State,
    shortened,
)
from fedssca.methods.multipliers import steer
from fedssca.methods.schedule import Schedule, warn_broken
from fedssca.methods.steered import SteeredMemory, mixture, opened
from fedssca.methods.surrogate import per_term
from fedssca.problem.problem import Array, Batch, Problem, Terms

__all__ = ["local_ssca", "local_ssca_change"]


class Rule(NamedTuple):
    """The numbers of one step; they are the same at all clients and on the server."""

    rho: Array
    gamma: Array
    slope: Array
    """Linearised known terms less the surrogate's curvature: the statistic is g + slope w."""
    bend: Array
    """2 kappa, the curvature of the averaged surrogate."""

    def step(self, w: Array, b: Array, g: Array) -> tuple[Array, Array]:
        """One step from (w, b) with the gradient g."""
        b = (1 - self.rho) * b + self.rho * (g + self.slope * w)
        return (1 - self.gamma) * w - self.gamma / self.bend * b, b


def local_ssca(
    problem: Problem,
    *,
    batch: int,
    steps: int,
    rounds: int,
    rho: Schedule,
    gamma: Schedule,
    tau: float | Sequence[float],
    opening: Sequence[float] = (),
    penalty: float = 1e8,
    exact: bool = False,
) -> Algorithm:
    """SSCA with `steps` local steps of batch `batch`; arguments as in `steered_ssca`.

    Without constraints known terms are linearised as in the paper, unless `exact`; with constraints
    they are always kept.
    """
    if steps < 1:
        raise UserError(f"local_steps = {steps}: it must be at least 1")
    rule = _rules(problem, steps, rho, gamma, tau, exact)
    change = _change(rule, steps)
    combine, valued = problem.combine, problem.valued
    course = steer(problem, rounds, penalty=penalty)
    warn_broken(rho, gamma)

    def request(state: State) -> Request:
        return Request(state.round + 1, state.w, mixture(state), state.memory.average)

    def reply(terms: Terms, asked: Request, data: Batch) -> Message:
        kind = asked.w.dtype
        share = data["weight"].sum().astype(kind) / steps
        mix, now = asked.weights @ jnp.asarray(combine, kind), rule(asked)

        def lagrangian(w: Array, local: Batch) -> tuple[Array, Array]:
            means = terms(w, local).astype(kind) @ local["weight"].astype(kind)
            return mix @ means / share, means

        def step(
            at: tuple[Array, Array], local: tuple[Array, Batch]
        ) -> tuple[tuple[Array, Array], Array]:
            slope, means = jax.grad(lagrangian, has_aux=True)(at[0], local[1])
            return now(local[0]).step(*at, slope), means[valued]

        local = jax.tree.map(lambda leaf: leaf.reshape(steps, -1, *leaf.shape[1:]), data)
        begin = asked.w, asked.average
        (w, _), values = jax.lax.scan(step, begin, (jnp.arange(steps), local))
        return Message(values.mean(0), {"change": share * (w - asked.w)})

    def update(state: State, total: Message) -> State:
        asked = request(state)
        after = asked.w + total.vectors["change"]
        measured = problem.measured(total.scalars, asked.w)
        return State(
            round=asked.round,
            w=shortened(state, after),
            memory=SteeredMemory(
                follow(asked, after),
                course.step(state.memory.course, asked.round, measured),
            ),
            slack=jnp.maximum(measured, 0),
            multipliers=asked.weights[1:] / asked.weights[0],
            pace=state.pace,
        )

    def follow(before: Request, after: Array) -> Array:
        w, b, still = before.w, before.average, change(before)
        rw, rb, rg = _way(rule(before), steps)[1]
        ghat = (after - w - still.centre) / still.unit
        return rw * w + rb * b + rg * ghat

    init = opened(problem, course, opening)
    return Algorithm(
        "ssca", batch, steps, init, request, reply, update, one_gradient=True, follow=follow
    )


def local_ssca_change(
    problem: Problem,
    *,
    steps: int,
    rho: Schedule,
    gamma: Schedule,
    tau: float | Sequence[float],
    exact: bool = False,
) -> Callable[[Request], LocalChange]:
    """How the change of w that a client of `local_ssca` sends carries a gradient."""
    return _change(_rules(problem, steps, rho, gamma, tau, exact), steps)


RuleOfRound = Callable[[Request], Callable[[Array], Rule]]
"""A request -> the numbers of its local steps k = 0..E-1."""


def _rules(
    problem: Problem,
    steps: int,
    rho: Schedule,
    gamma: Schedule,
    tau: float | Sequence[float],
    exact: bool,
) -> RuleOfRound:
    taus = per_term(problem, tau) * problem.combine.any(axis=1)
    keep = exact or problem.constraints > 0

    def rule(asked: Request) -> Callable[[Array], Rule]:
        kind, a, t = asked.w.dtype, asked.weights, asked.round
        tau, known = a @ jnp.asarray(taus, kind), a @ jnp.asarray(problem.known, kind)
        linear = jnp.zeros_like(known) if keep else known
        now, gamma_t = rho._replace(warm=False)(t), gamma(t).astype(kind)

        def at(k: Array) -> Rule:
            mean = 1 / ((t - 1) * steps + k + 1)
            share = jnp.maximum(now, mean) if rho.warm else now
            return Rule(share.astype(kind), gamma_t, 2 * (linear - tau), 2 * (tau + known - linear))

        return at

    return rule


def _change(rule: RuleOfRound, steps: int) -> Callable[[Request], LocalChange]:
    def change(asked: Request) -> LocalChange:
        (cw, cb, cg), _ = _way(rule(asked), steps)
        return LocalChange((cw - 1) * asked.w + cb * asked.average, cg)

    return change


def _way(rule: Callable[[Array], Rule], steps: int) -> tuple[Any, Any]:
    """(w, b) after `steps` steps with one gradient ghat, each as coefficients of (w, b, ghat)."""
    at = jnp.asarray(np.eye(3), rule(jnp.zeros((), int)).rho.dtype)

    def again(k: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        return rule(k).step(*now, at[2])

    return jax.lax.fori_loop(0, steps, again, (at[0], at[1]))
