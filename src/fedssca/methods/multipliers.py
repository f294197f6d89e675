"""Two rules for the multipliers of the constraints in a round's convex problem.

`exact_penalty` is the paper's: solve the round's problem as it stands. With mini-batches this
optimises a surrogate against its own noise (an averaged gradient of squared length |g|^2 + noise
promises a decrease that is not there), so the multipliers jump and the limits end up broken.

`steered` uses the constraint values that the clients measure on fresh batches. A multiplier grows
while its constraint is predicted to end above its limit, and shrinks while it is predicted to end
below. It needs nothing that the clients do not send already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.methods.solver import Quadratic, Solution, lemma1, solve
from fedssca.problem.problem import Array, Problem
from fedssca.problem.programs import number

__all__ = [
    "Dual",
    "MultiplierRule",
    "MultiplierState",
    "RoundProblem",
    "exact_penalty",
    "opening",
    "steer",
    "steered",
]


class RoundProblem(NamedTuple):
    """What is known when a round's multipliers are set."""

    t: Array
    w: Array
    surrogates: Quadratic
    """Fbar_0..Fbar_M, one row each, limits subtracted."""
    measured: Array
    """F_1..F_M at w(t), averaged over this round's batches, limits subtracted."""
    norm_objective: bool


class Dual(NamedTuple):
    """A rule for the multipliers."""

    init: Callable[[Array], Any]
    """Its memory before round 1, for parameters like w."""
    step: Callable[[Any, RoundProblem], tuple[Any, Solution]]
    """The next memory and the solution (wbar, slack, multipliers) of the round's problem."""


def exact_penalty(
    problem: Problem, penalty: float | Sequence[float] = 1e5, patience: int = 100
) -> Dual:
    """min Fbar_0 + c sum s_m  s.t.  Fbar_m <= s_m, s >= 0, by Lemma 1 or the dual.

    `penalty` is c, or the continuation c_1 < c_2 < ... of Theorems 2 and 4: the next one is taken
    when a stage has lasted `patience` rounds and some slack is still positive.
    """
    stages = np.atleast_1d(np.asarray(penalty, float))
    if not (stages > 0).all() or not (np.diff(stages) > 0).all():
        raise UserError(f"penalty = {penalty}: it must be positive, and a list must increase")

    def init(w: Array) -> tuple[Array, Array]:
        return jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)

    def step(
        memory: tuple[Array, Array], now: RoundProblem
    ) -> tuple[tuple[Array, Array], Solution]:
        stage, since = memory
        c = jnp.asarray(stages, now.w.dtype)[stage]
        objective = jax.tree.map(lambda leaf: leaf[0], now.surrogates)
        constraints = jax.tree.map(lambda leaf: leaf[1:], now.surrogates)
        if now.norm_objective and problem.constraints == 1:
            best = lemma1(constraints, c)
        else:
            best = solve(objective, constraints, c)
        stuck = (since + 1 >= patience) & jnp.any(best.slack > 1e-6)
        onward = stuck & (stage + 1 < len(stages))
        return (stage + onward, jnp.where(onward, 0, since + 1)), best

    return Dual(init, step)


class MultiplierState(NamedTuple):
    """The multipliers, and for each constraint its smoothed value, its trend and its variance."""

    log_multiplier: Array
    level: Array
    trend: Array
    spread: Array


class MultiplierRule(NamedTuple):
    """How measured values move multipliers."""

    init: Callable[[Array], MultiplierState]
    step: Callable[[MultiplierState, Array, Array], MultiplierState]
    """(state, t, measured F_1..F_M) -> the state with the next multipliers."""


def steer(
    problem: Problem,
    rounds: int,
    *,
    penalty: float = 1e8,
    speed: float = 12.0,
    memory: float = 50.0,
) -> MultiplierRule:
    """Every round log nu_m moves by speed / rounds * clip(ahead / scale, -1, 1).

    `ahead` predicts F_m at the end of the run: its smoothed level plus 0.85 of its trend over
    t log(T / t) rounds, because learning curves fall about linearly in log t. One per cent of the
    limit and the standard error of the level are added as a reserve, because a value that ends too
    low is easily corrected at the end and one that ends too high is not. `scale` is the limit or
    the noise of one measurement, whichever is larger. All rates are relative to the length of the
    run, so they need no change when it changes. `penalty` bounds the multipliers, as in the exact
    penalty method.
    """
    if rounds < 1:
        raise UserError(f"rounds = {rounds}: at least 1 is needed")
    if not penalty > 0:
        raise UserError(f"penalty = {penalty}: it must be positive")
    limits = np.abs(problem.limits)
    opposite, paired = opposites(problem)

    def init(w: Array) -> MultiplierState:
        zero = jnp.zeros(problem.constraints, w.dtype)
        return MultiplierState(zero, zero, zero, zero)

    def step(course: MultiplierState, t: Array, f: Array) -> MultiplierState:
        first, time, end = t == 1, t.astype(f.dtype), number(rounds, f.dtype)
        keep = number(min(memory / rounds, 0.5), f.dtype)
        level = jnp.where(first, f, keep * f + (1 - keep) * (course.level + course.trend))
        trend = jnp.where(first, 0, keep * (level - course.level) + (1 - keep) * course.trend)
        spread = jnp.where(first, 0, keep * jnp.square(f - level) + (1 - keep) * course.spread)
        ahead = level + 0.85 * trend * time * jnp.log(end / time)
        reserve = 0.01 * limits + jnp.sqrt(keep * spread)
        scale = jnp.maximum(jnp.maximum(limits, jnp.sqrt(spread)), 1e-3)
        push = jnp.clip((ahead + reserve) / scale, -1, 1)
        old = course.log_multiplier
        outdone = paired & (push[opposite] > 0) & (old[opposite] > old)
        push = jnp.where(outdone, jnp.minimum(push, 0), push)
        new = jnp.minimum(old + speed / end * push, number(np.log(penalty), f.dtype))
        return MultiplierState(new.astype(f.dtype), level, trend, spread)

    return MultiplierRule(init, step)


def steered(problem: Problem, rounds: int, *, penalty: float = 1e8) -> Dual:
    """The same as a rule for `ssca` with any surrogate; clients then send every term's gradient."""
    course = steer(problem, rounds, penalty=penalty)
    _, paired = opposites(problem)

    def step(memory: MultiplierState, now: RoundProblem) -> tuple[MultiplierState, Solution]:
        slopes = now.surrogates.linear + 2 * _columns(now.surrogates.curvature) * now.w
        lengths = jnp.linalg.norm(slopes, axis=1)
        first = opening(lengths, now.measured, paired, now.norm_objective)
        log_multiplier = jnp.where(now.t == 1, jnp.log(first), memory.log_multiplier)
        best = at_multipliers(now.surrogates, jnp.exp(log_multiplier))
        memory = memory._replace(log_multiplier=log_multiplier)
        return course.step(memory, now.t, now.measured), best

    return Dual(course.init, step)


def opposites(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """For each constraint the one that bounds the same quantity from the other side, if any.

    Only the difference of two such multipliers acts on w. The smaller one does not grow while the
    larger one does, or noise would increase both.
    """
    rows = np.concatenate([problem.combine[1:], problem.known[1:, None]], axis=1)
    others = range(len(rows))
    found = [[m for m in others if rows[i].any() and (rows[i] == -rows[m]).all()] for i in others]
    return np.array([m[0] if m else 0 for m in found], int), np.array(
        [bool(m) for m in found], bool
    )


def opening(
    lengths: Array, measured: Array, paired: Array | np.ndarray, norm_objective: bool
) -> Array:
    """First multipliers: ratios of the gradients' lengths, with a lead for limits that are broken.

    `lengths` are |grad F_0|..|grad F_M|. With the norm as objective the lead is 30: the gradient of
    the norm stays, while that of a loss shrinks thirtyfold and more until a low limit is met. A
    quantity that is bounded from both sides gets no lead, because it is not known yet which side
    will bind. The multiplier of a limit that holds starts at a tenth of the ratio.
    """
    floor = 1e-6 * jnp.max(lengths) + np.finfo(lengths.dtype).tiny
    own = jnp.where(lengths[0] > floor, lengths[0], jnp.max(lengths))
    lead = jnp.where(paired, 1.0, 30.0 if norm_objective else 3.0)
    ratio = own / jnp.maximum(lengths[1:], floor)
    return (ratio * jnp.where(measured > 0, lead, 0.1)).astype(lengths.dtype)


def at_multipliers(surrogates: Quadratic, nu: Array) -> Solution:
    """wbar = argmin Fbar_0 + sum_m nu_m Fbar_m for given nu, in closed form."""
    weights = jnp.concatenate([jnp.ones(1, nu.dtype), nu])
    linear = weights @ surrogates.linear
    w = -0.5 / (weights @ surrogates.curvature) * linear
    return Solution(w, jnp.maximum(surrogates(w)[1:], 0), nu, jnp.zeros((), w.dtype))


def _columns(curvature: Array) -> Array:
    return curvature if curvature.ndim == 2 else curvature[:, None]
