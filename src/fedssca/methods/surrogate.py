"""Convex surrogates, split in two: statistics q at the clients, a convex function p at the server.

A client sends q, sums over its batch taken at w(t). The server rewrites the sum of all q around the
origin (`recentre`), so that statistics taken at different points can be averaged over the rounds:

    Q(t) = (1 - rho(t)) Q(t-1) + rho(t) recentre(w(t), sum_i q_i),     Q(0) = 0,

and the surrogates are Fbar_m = p_m(., Q(t)), with p linear in Q: mixing Q mixes the functions.
Write your own as four functions; docs/own-surrogate.md shows one in under 30 lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.methods.algorithm import Message, Request
from fedssca.methods.solver import Quadratic
from fedssca.problem.problem import Array, Batch, Problem, Terms

__all__ = ["Surrogate", "cast", "first_order", "gradients", "per_term", "stack"]


class Surrogate(NamedTuple):
    """A family of convex surrogates for all F_m of one problem."""

    zero: Callable[[Array], Any]
    """Q(0) for parameters like w."""
    message: Callable[[Terms, Array, Batch], Message]
    """Client: q from the terms, the point w(t) and the batch."""
    recentre: Callable[[Array, Message], Any]
    """Server: the sum of the q, taken at w(t), as a statistic around the origin."""
    function: Callable[[Any], Quadratic]
    """Server: p(., Q), one row for the objective and one per constraint, limits subtracted."""
    norm_objective: bool = False
    """True where the objective is |w|^2 itself, so that Lemma 1 applies."""


def gradients(problem: Problem, terms: Terms, w: Array, batch: Batch) -> Message:
    """q = (sum_n weight_n f_k(w; x_n), sum_n weight_n grad f_k(w; x_n)), k = 1..K.

    Values go out only for terms that a constraint uses, as in Algorithms 1 and 3.
    """
    weight = batch["weight"].astype(w.dtype)
    means, pullback = jax.vjp(lambda point: terms(point, batch).astype(w.dtype) @ weight, w)
    if len(means) == 1:
        rows = pullback(jnp.ones_like(means))[0][None]
    else:
        (rows,) = jax.vmap(pullback)(jnp.eye(len(means), dtype=w.dtype))
    return Message(means[problem.valued], {"gradient": rows})


def mixed_gradient(problem: Problem, terms: Terms, asked: Request, batch: Batch) -> Message:
    """The same values, and one gradient for all terms: that of sum_m a_m F_m's sampled part.

    The weights a are those of the request, so that a message is as long for any number of limits.
    """
    weight = batch["weight"].astype(asked.w.dtype)
    mix = asked.weights @ jnp.asarray(problem.combine, asked.w.dtype)

    def mixed(w: Array) -> tuple[Array, Array]:
        means = terms(w, batch).astype(w.dtype) @ weight
        return mix @ means, means

    slope, means = jax.grad(mixed, has_aux=True)(asked.w)
    return Message(means[problem.valued], {"gradient": slope})


def first_order(
    problem: Problem, tau: float | Sequence[float], *, exact: bool = False
) -> Surrogate:
    """The paper's example: fbar(w; w') = f(w') + grad f(w')'(w - w') + tau |w - w'|^2.

    So Fbar_m = C_m + b_m'w + tau |w|^2 with, g and f being the batch averages at w(t),

        b <- (1 - rho) b + rho (g - 2 tau w(t)),
        C <- (1 - rho) C + rho (f - g'w(t) + tau |w(t)|^2).

    C_0 moves no minimiser and stays 0. Known terms known[m] |w|^2 of a sampled F_m are linearised
    at w(t) too, as the paper does; with `exact` they stay as they are, a tighter surrogate at no
    cost. An F_m without sampled terms (the norm as objective) is always kept exact. A list gives
    every F_m a tau of its own.
    """
    taus = per_term(problem, tau)
    rows = np.flatnonzero(problem.combine.any(axis=1))
    combine, known = problem.combine[rows], problem.known[rows]
    valued = np.where(rows[:, None] > 0, combine, 0.0)[:, problem.valued]
    linearised = np.zeros_like(known) if exact else known

    def zero(w: Array) -> tuple[Array, Array]:
        return jnp.zeros((len(rows), w.size), w.dtype), jnp.zeros(len(rows), w.dtype)

    def recentre(w: Array, q: Message) -> tuple[Array, Array]:
        norm_sq = w @ w
        slope = cast(combine, w) @ q.vectors["gradient"] + 2 * cast(linearised, w)[:, None] * w
        value = cast(valued, w) @ q.scalars + cast(linearised, w) * norm_sq
        bend = cast(taus[rows], w)
        constant = jnp.where(rows > 0, value - slope @ w + bend * norm_sq, 0)
        return slope - 2 * bend[:, None] * w, constant

    def function(mixed: tuple[Array, Array]) -> Quadratic:
        b, c = mixed
        curvature = np.array(problem.known)
        curvature[rows] += taus[rows] - linearised
        return stack(problem, rows, c, b, cast(curvature, b))

    norm_objective = 0 not in rows and bool(problem.known[0] == 1.0)
    return Surrogate(zero, lambda *q: gradients(problem, *q), recentre, function, norm_objective)


def stack(problem: Problem, rows: np.ndarray, c: Array, b: Array, curvature: Array) -> Quadratic:
    """All M + 1 surrogates, limits subtracted; F_m outside `rows` have only their known term."""
    count = problem.constraints + 1
    constant = jnp.zeros(count, b.dtype).at[rows].set(c)
    of = {int(row): b[i] for i, row in enumerate(rows)}
    linear = b if len(of) == count else jnp.stack([of.get(m, 0 * b[0]) for m in range(count)])
    limits = np.concatenate([[0.0], problem.limits])
    return Quadratic(constant - cast(limits, b), linear, curvature)


def per_term(problem: Problem, tau: float | Sequence[float]) -> np.ndarray:
    """One tau for each F_m."""
    taus = np.asarray(tau, float)
    if taus.ndim and len(taus) != problem.constraints + 1:
        raise UserError(
            f"tau has {len(taus)} entries: give one number, or {problem.constraints + 1}"
        )
    if not (taus > 0).all():
        raise UserError(f"tau = {tau}: the surrogate is strongly convex only for tau > 0")
    return np.broadcast_to(taus, problem.constraints + 1)


def cast(numbers: np.ndarray, like: Array) -> Array:
    """Numbers as an array of the same dtype as `like`."""
    return jnp.asarray(numbers, like.dtype)
