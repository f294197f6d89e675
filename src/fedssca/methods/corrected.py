"""SSCA with the exact rule, corrected by measured values: the default method, one gradient a round.

The server publishes w(t) and weights a_0..a_M. A client sends the values of the constrained terms
and ONE gradient, that of sum_m a_m F_m, so that a round costs the same for any number M of limits.
The K sampled means have gradients g_1..g_K, and S_m = sum_k combine[m, k] g_k + 2 known_m w is that
of F_m. One round, with gamma = gamma(t), rho the step of the averages and u = (1, v):

 1. Track. The g_k follow from mixed gradients y = c'g, c = a'combine, by recursive least squares
    (a Kalman filter whose state, the K gradients, drifts; s_k is the length of g_k):
        x = c s / |c s|,      gain = P x / (x'P x + 1),      g <- g + s gain (y - c'g) / |c s|,
        P <- P - gain x'P + rho^2 / (1 - rho) I,             P(0) = large.
    For K = 1 this is the average g <- (1 - rho) g + rho y. Weights are a = u plus a small share
    whose signs alternate, which tells the g_k apart and leaves their mixture u'S alone.
 2. Observe. f_m is the measured F_m, pi_m its forecast, e = f - x - pi the surprise:
        x <- x + pi + l_1 e,                z <- z + l_2 e,
        l_1 = max(2 p gamma, 10 / T, 1 / t),    l_2 = p^2 gamma,
    x is where F_m stands, z by how much full steps fall short of what the surrogate promises
    (noise in |S|^2, curvature, lag). The shortfall falls with the noise: it counts gamma^q.
 3. Solve the round's convex problem, d = wbar - w, A_m = tau_m [F_m is sampled] + known_m:
        min S_0'd + A_0 |d|^2   s.t.   x_m / h + z_m + r_m + S_m'd + A_m |d|^2 <= slack_m,
    by its dual v = argmax v'(x / h + z + r) - |u'S|^2 / (4 u'A) over 0 <= v_m <= c_m, where the
    exact penalty is c_m = 5 |S_0| / |S_m|, r_m a reserve of a fraction of the noise of f_m, and
    h = min(1, gamma (T - t) / 2) the travel that is left: less than a full step at the end.
    A limit that holds has v_m = 0: it costs nothing and earns nothing.
 4. Step d = -u'S / (2 u'A), shortened such that gamma |d| <= 0.05 |w|;  w <- w + gamma d,
    and forecast pi = gamma (S'd + A |d|^2 + z).

All gains are relative to gamma, all lengths to others of the same unit, so that units cancel. A
message that is not finite, or a gradient a thousand times its usual length, is not used: the point
goes back to the one before and steps are half as long for a while.

With rho -> 0, gamma -> 0, gamma / rho -> 0 the tracked g_k converge to the gradients (the lemma
behind Theorems 1-4: averages of unbiased statistics along a slow path), and x - F_m and z vanish
with the noise and gamma; what remains is the paper's Algorithm 2 (or 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request, State, first_state
from fedssca.methods.dual_ascent import ascend
from fedssca.methods.multipliers import opposites
from fedssca.methods.schedule import Schedule, warn_broken
from fedssca.methods.surrogate import mixed_gradient, per_term
from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.problem.programs import number
from fedssca.problem.starts import first_array, zeros

__all__ = ["CorrectedMemory", "corrected_ssca"]

LONGER = 2.0
"""Steps are so many times as long as `calibrate` proposes: the trust region allows it."""
OBSERVER = 2.0
"""p: how fast the observer is, relative to gamma."""
FADE = 0.3
"""q: how fast the shortfall falls as gamma does."""
CAP, RELEASE = 5.0, 0.2
"""c_m in units of |S_0| / |S_m|, and how fast (times gamma) the longest |S_m| is forgotten."""
RESERVE = 0.2
"""r_m in standard deviations of one measurement."""
TRUST = 0.05
"""The longest step of a round, relative to |w|."""
PROBING = 0.3
"""The share of the weights whose sign alternates."""
REMAIN = 0.1
"""The travel that is left in a run counts at least this much; see step 3."""
WILD = 1e3
"""A gradient so many times its usual length is not used."""
FULL = 8
"""The products of the tracked gradients are computed anew every so many rounds, else adapted."""
TINY = 1e-30


class CorrectedMemory(NamedTuple):
    """What the server remembers between rounds."""

    slopes: Array
    """g, the tracked gradients of the sampled means, (K, d)."""
    gram: Array
    """The products g_k'g_l, (K, K)."""
    spread: Array
    """P, the uncertainty of the tracked gradients in units of their lengths, (K, K)."""
    scale: Array
    """s, the lengths of the g_k, (K,)."""
    weights: Array
    """a, the weights of F_0..F_M in the coming request."""
    peak: Array
    """The longest |S_m| of late."""
    level: Array
    """x, where the F_m stand."""
    shortfall: Array
    """z, how much full steps fall short of the surrogates' promises."""
    noise: Array
    """The mean square of the surprise."""
    forecast: Array
    """pi, the forecast change of F_m."""
    v: Array
    """The solution of the dual, where the next search starts."""
    good: Array
    """The last point whose message was usable."""
    size: Array
    """|w(1)|, or the length of the first full step where w(1) = 0."""
    returns: Array
    """How often the point went back."""


def corrected_ssca(
    problem: Problem,
    *,
    batch: int,
    rounds: int,
    rho: Schedule,
    gamma: Schedule,
    tau: float | Sequence[float],
    balance: Sequence[float],
) -> Algorithm:
    """The method behind `fedssca.auto`: `calibrate` finds all of its numbers.

    `balance` are the ratios |grad F_0| / |grad F_m| at the start, `rounds` is T.
    """
    taus = per_term(problem, tau)
    if len(balance) != problem.constraints or not all(ratio > 0 for ratio in balance):
        raise UserError(f"balance = {list(balance)}: give a positive number for each constraint")
    warn_broken(rho, gamma)
    combine, known, count = problem.combine, problem.known, problem.constraints
    kinds = combine.shape[1]
    drift = rho.a**2 / (1 - min(rho.a, 0.99))
    curvature = taus / LONGER * combine.any(axis=1) + known
    lengths = np.array([1.0, *(1 / ratio for ratio in balance)])
    with np.errstate(divide="ignore"):
        first = np.where(combine != 0, lengths[:, None] / np.abs(combine), np.inf).min(axis=0)
    opposite, paired = opposites(problem)
    room = np.where(paired, (problem.limits + problem.limits[opposite]) / 4, np.inf)

    def init(w: Array) -> State:
        zero, ratios = zeros(count, w.dtype), np.asarray(1 / lengths, w.dtype)
        spread = first_array(1e4 * np.eye(kinds), w.dtype)
        gradients = zeros((kinds, w.size), w.dtype), zeros((kinds, kinds), w.dtype), spread
        equal, own = (first_array(each, w.dtype) for each in (ratios, 1 / ratios))
        weights = probing(first_array(1, np.int32), equal, own)
        scales = first_array(first, w.dtype), weights, zeros(count + 1, w.dtype)
        safety = w, jnp.linalg.norm(w), zeros((), np.int32)
        memory = CorrectedMemory(*gradients, *scales, zero, zero, zero, zero, zero, *safety)
        return first_state(problem, w, memory)

    def request(state: State) -> Request:
        return Request(state.round + 1, state.w, state.memory.weights)

    def reply(terms: Terms, asked: Request, data: Batch) -> Message:
        return mixed_gradient(problem, terms, asked, data)

    def track(m: CorrectedMemory, fresh: Array, t: Array, usable: Array) -> CorrectedMemory:
        mix = m.weights @ jnp.asarray(combine, fresh.dtype)
        length = jnp.maximum(jnp.linalg.norm(mix * m.scale), TINY)
        x = mix * m.scale / length
        gain = m.spread @ x / (x @ m.spread @ x + 1)
        grown = number(drift, x.dtype) * jnp.eye(kinds, dtype=x.dtype)
        spread = m.spread - jnp.outer(gain, x @ m.spread) + grown
        error, gain = jnp.where(usable, (fresh - mix @ m.slopes) / length, 0), gain * m.scale
        slopes = m.slopes + gain[:, None] * error
        change = jnp.outer(gain, slopes @ error - gain * (error @ error) / 2)
        gram = jax.lax.cond(
            t % FULL == 1, lambda: slopes @ slopes.T, lambda: m.gram + change + change.T
        )
        return m._replace(slopes=slopes, gram=gram, spread=(spread + spread.T) / 2)

    def mixed(gram: Array, slopes: Array, w: Array) -> Array:
        """S S', from the products g g' of the tracked gradients."""
        mixing, convex = jnp.asarray(combine, w.dtype), jnp.asarray(known, w.dtype)
        gram = mixing @ gram @ mixing.T
        if known.any():
            across = jnp.outer(2 * convex, mixing @ (slopes @ w) + convex * (w @ w))
            gram = gram + across + across.T
        return gram

    def observe(m: CorrectedMemory, f: Array, t: Array, step: Array) -> CorrectedMemory:
        e = jnp.where(t == 1, 0, f - m.level - m.forecast)
        quick = jnp.maximum(
            jnp.maximum(2 * OBSERVER * step, number(10 / rounds, step.dtype)), 1 / t
        )
        slow, rate = OBSERVER**2 * step / fade(step), jnp.maximum(0.03, 1 / t)
        return m._replace(
            level=jnp.where(t == 1, f, m.level + m.forecast + quick * e),
            shortfall=m.shortfall + slow * e,
            noise=(1 - rate) * m.noise + rate * e * e,
        )

    def fade(step: Array) -> Array:
        return jnp.maximum(step / number(gamma.a, step.dtype), 0.01) ** FADE

    def update(state: State, total: Message) -> State:
        fresh, w, m = total.vectors["gradient"], state.w, state.memory
        usual = jnp.linalg.norm(m.weights @ jnp.asarray(combine, w.dtype) * m.scale)
        length = jnp.linalg.norm(fresh)
        usable = jnp.isfinite(length) & jnp.all(jnp.isfinite(total.scalars))
        again = (state.round == 0) | jnp.all(w == m.good)
        usable &= again | (length <= WILD * usual)
        onward = step_on(state, total, usable)
        back = state._replace(
            round=state.round + 1,
            w=m.good,
            memory=m._replace(
                slopes=onward.memory.slopes, returns=m.returns + 1, forecast=0 * m.forecast
            ),
            pace=state.pace / 2,
        )
        return jax.tree.map(lambda a, b: jnp.where(usable, a, b), onward, back)

    def step_on(state: State, total: Message, usable: Array) -> State:
        w, t = state.w, state.round + 1
        m, measured, bends = state.memory, jnp.zeros(0, w.dtype), jnp.asarray(curvature, w.dtype)
        time, step = t.astype(w.dtype), gamma(t).astype(w.dtype) * state.pace
        if count:
            measured = problem.measured(total.scalars, w)
            m = observe(m, measured, time, step)
        m = track(m, total.vectors["gradient"], t, usable)
        each = jnp.sqrt(jnp.maximum(jnp.diagonal(m.gram), 0))
        gram = mixed(m.gram, m.slopes, w)
        least = 1e-7 * jnp.square(jnp.abs(jnp.asarray(combine, w.dtype)) @ each)
        long = jnp.sqrt(jnp.maximum(jnp.diagonal(gram), least))
        gram = gram + jnp.diag(1e-6 * long * long)
        v, peak = m.v, jnp.maximum(long, m.peak * (1 - RELEASE * step))
        if count:
            own = jnp.where(long[0] > 1e-6 * long.max(), long[0], long.max())
            cap = own / jnp.maximum(peak[1:], TINY)
            cap = CAP * jnp.minimum(cap, 1e3 / jnp.asarray(lengths[1:], w.dtype))
            reserve = jnp.minimum(RESERVE * jnp.sqrt(m.noise), jnp.asarray(room, w.dtype))
            ahead = jnp.clip(step * (number(rounds, w.dtype) - time) / 2, REMAIN, 1)
            v = ascend(m.level / ahead + fade(step) * m.shortfall + reserve, gram, bends, cap, m.v)
        u = jnp.concatenate([jnp.ones(1, w.dtype), v])
        a, pull = u @ bends, gram @ u
        mix, convex = u @ jnp.asarray(combine, w.dtype), u @ jnp.asarray(known, w.dtype)
        d = -0.5 / a * (mix @ m.slopes + 2 * convex * w)
        far = jnp.linalg.norm(d)
        size = jnp.where((t == 1) & (m.size == 0), far, m.size)
        most = TRUST * jnp.maximum(jnp.linalg.norm(w), size)
        step = step * jnp.minimum(1, most / jnp.maximum(step * far, TINY))
        change = (-pull / (2 * a) + bends * (u @ pull) / (4 * a * a))[1:]
        rate = jnp.maximum(0.03, 1 / time)
        forecast = step * (change + fade(step) * m.shortfall)
        pace = jnp.minimum(1, 1.02 * state.pace)
        m = m._replace(scale=at_least(each, first), peak=peak, v=v)
        m = m._replace(weights=probing(t, u, long), forecast=forecast)
        m = m._replace(good=w, size=size)
        price = (1 - rate) * state.multipliers + rate * v
        return State(t, w + step * d, m, jnp.maximum(measured, 0), price, pace)

    def probing(t: Array, u: Array, long: Array) -> Array:
        """u plus a share of alternating sign, each term as long as all of u'S are on average."""
        if kinds == 1:
            return first_array(combine[:, 0] / (combine[:, 0] @ combine[:, 0]), u.dtype)
        if count:
            key = jax.random.fold_in(jax.random.key(0), t // 2)
            sign = jax.random.rademacher(key, u.shape, u.dtype) * (1 - 2 * (t % 2))
            mean = jnp.sqrt(jnp.mean(jnp.square(u * long)))
            u = u + PROBING * sign * mean / at_least(long, lengths)
        return u / jnp.maximum(jnp.abs(u).max(), TINY)

    def reweighed(state: State, weights: Array) -> State:
        return state._replace(memory=state.memory._replace(weights=weights))

    return Algorithm(
        *("ssca", batch, 1, init, request, reply, update), one_gradient=True, reweighed=reweighed
    )


def at_least(found: Array, ratios: np.ndarray) -> Array:
    """Lengths, none below a thirtieth of what the ratios at the start say; see `balance`."""
    usual = jnp.asarray(ratios, found.dtype)
    return jnp.maximum(found, 0.03 * usual * jnp.max(found / usual)) + TINY
