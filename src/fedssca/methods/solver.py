"""The small convex problem of every round: a quadratic objective under softened quadratic limits.

    minimise over w, s    F_0(w) + c sum_m s_m    subject to    F_m(w) <= s_m,  s_m >= 0

Each F is ``constant + linear'w + sum_j curvature_j w_j^2``. The dual lives in the box [0, c]^M,

    g(v) = min_w F_0(w) + sum_m v_m F_m(w),    w(v) = -b(v) / (2 a(v)),
    a(v) = a_0 + sum_m v_m a_m,                b(v) = b_0 + sum_m v_m b_m,

concave in M unknowns however many weights the model has; a damped Newton method climbs it.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

__all__ = ["Quadratic", "Solution", "lemma1", "solve"]

_ITERATIONS = 200  # the largest number of Newton steps
_KEEP = 1e-4  # the share of the first-order gain that an accepted step must keep
_matmul = partial(jnp.matmul, precision="highest")


class Quadratic(NamedTuple):
    """constant + linear'w + sum_j curvature_j w_j^2; leaves may carry a leading axis of terms."""

    constant: Array  # () or (M,)
    linear: Array  # (d,) or (M, d)
    curvature: Array  # () or (d,); (M,) or (M, d)

    def __call__(self, w: Array) -> Array:
        """Value at w, one for each term."""
        return self.constant + _matmul(self.linear, w) + jnp.sum(_columns(self) * w * w, axis=-1)


class Solution(NamedTuple):
    """Minimiser, slacks max(0, F_m(w)), multipliers in [0, c], and primal minus dual value."""

    w: Array  # (d,)
    slack: Array  # (M,)
    multipliers: Array  # (M,)
    gap: Array  # ()


class _Point(NamedTuple):
    """The dual at v: g(v), its gradient F(w(v)), minus its Hessian, and the gap of (w(v), v)."""

    v: Array
    value: Array
    gradient: Array
    hessian: Array
    gap: Array


def solve(objective: Quadratic, constraints: Quadratic, penalty: ArrayLike) -> Solution:
    """Solve for any M >= 0; curvatures must be > 0 in the objective, >= 0 in the constraints."""
    if constraints.constant.size == 0:
        none = jnp.zeros(0, objective.linear.dtype)
        w = -0.5 / objective.curvature * objective.linear
        return Solution(w, none, none, jnp.zeros((), w.dtype))
    with jax.enable_x64(True):
        first, rest = _widen(objective), _widen(constraints)
        c, v = jnp.asarray(penalty, np.float64), jnp.zeros_like(rest.constant)
        v = _maximise(*_compress(first, rest), c, v)
        return _recover(first, rest, c, v, objective.linear)


def lemma1(constraint: Quadratic, penalty: ArrayLike) -> Solution:
    """Closed form for the objective |w|^2 and one constraint C + b'w + t|w|^2 <= s.

    With D = |b|^2 - 4 t C the multiplier is (|b| / sqrt(D) - 1) / t clipped to [0, c], or c where
    D <= 0, and w = -v b / (2 (1 + v t)). Written as 4 C / (sqrt(D) (|b| + sqrt(D))) it holds at
    t = 0 too, and with |b|^2 divided out nothing overflows. Only two sums and w pass over b: the
    constraint at w = -k b is C - k |b|^2 + t k^2 |b|^2.
    """
    dtype = constraint.linear.dtype
    largest = jnp.max(jnp.abs(constraint.linear))
    with jax.enable_x64(True):
        constant, linear, t = (part.reshape(-1) for part in _widen(constraint))
        c, there = jnp.asarray(penalty, linear.dtype), largest > 0
        unit = jnp.where(there, largest, 1).astype(linear.dtype)
        length = jnp.where(there, unit * jnp.sqrt(jnp.sum(jnp.square(linear / unit))), 1)
        ratio = constant / length / length
        share = 1 - 4 * t * ratio  # D / |b|^2
        reachable = there & (share > 0)
        root = jnp.sqrt(jnp.where(reachable, share, 1))
        price = jnp.where(reachable, 4 * ratio / (root * (1 + root)), c)
        v = jnp.where(constant > 0, jnp.minimum(price, c), 0)
        k = v / (2 * (1 + v * t))
        norm = jnp.where(there, k * length, 0)  # |w|
        value = constant - norm * length + t * norm * norm
        numbers = jnp.maximum(value, 0), v, _gap(value, v, c)
        return Solution((-k * linear).astype(dtype), *(number.astype(dtype) for number in numbers))


def _widen(q: Quadratic) -> Quadratic:
    """The same in float64: the dual has few unknowns and is sensitive to rounding."""
    return Quadratic(*(jnp.asarray(x, np.float64) for x in q))


def _columns(q: Quadratic) -> Array:
    """Curvature with an axis for w, of length 1 where it is a scalar per term."""
    return q.curvature if q.curvature.ndim == q.linear.ndim else q.curvature[..., None]


def _compress(objective: Quadratic, constraints: Quadratic) -> tuple[Quadratic, Quadratic]:
    """The same dual over min(d, M + 1) weights, where every curvature is a scalar.

    Only w in the span of the gradients matters then, and the factor R of their QR decomposition
    holds the coordinates there. The Gram matrix R'R would lose half of the digits.
    """
    if objective.curvature.ndim or constraints.curvature.ndim > 1:
        return objective, constraints
    rows = jnp.concatenate([objective.linear[None], constraints.linear])
    r = jnp.linalg.qr(rows.T, mode="r").T
    return objective._replace(linear=r[0]), constraints._replace(linear=r[1:])


def _minimiser(objective: Quadratic, constraints: Quadratic, v: Array) -> tuple[Array, Array]:
    """The minimiser w(v) of the Lagrangian and its curvature a(v)."""
    a = objective.curvature + _matmul(v, constraints.curvature)
    return -0.5 / a * (objective.linear + _matmul(v, constraints.linear)), a


def _gap(value: Array, v: Array, c: Array) -> Array:
    """Primal minus dual at (w(v), v), computed without cancellation: sum (c - v) F+ + v F-."""
    return jnp.sum((c - v) * jnp.maximum(value, 0) + v * jnp.maximum(-value, 0))


def _recover(first: Quadratic, rest: Quadratic, c: Array, v: Array, like: Array) -> Solution:
    w = _minimiser(first, rest, v)[0].astype(like.dtype)
    value = rest(w.astype(v.dtype))
    numbers = jnp.maximum(value, 0), v, _gap(value, v, c)
    return Solution(w, *(number.astype(like.dtype) for number in numbers))


def _evaluate(objective: Quadratic, constraints: Quadratic, c: Array, v: Array) -> _Point:
    """The dual at v; minus its Hessian is J diag(1 / 2a) J' with J_mj = b_mj + 2 a_mj w_j."""
    w, a = _minimiser(objective, constraints, v)
    value, jacobian = constraints(w), constraints.linear + 2 * _columns(constraints) * w
    hessian = _matmul(jacobian / (2 * a), jacobian.T)
    return _Point(v, objective(w) + v @ value, value, hessian, _gap(value, v, c))


def _candidate(point: _Point, damping: Array, c: Array) -> Array:
    """A damped Newton step in the box.

    Multipliers whose own gradient step leaves the box are held at the bound (Bertsekas'
    epsilon-active set, with epsilon in the units of each multiplier). The others take the Newton
    step given that, and those that it moves out of the box are held too. With heavy damping the
    step is a projected gradient step, which always ascends.
    """
    v, _, gradient, hessian, _ = point
    tiny = np.finfo(v.dtype).tiny ** 0.5
    # |gradient| / c keeps a multiplier whose constraint hardly depends on w within reach of c.
    scale = jnp.diag(hessian) + abs(gradient) / jnp.maximum(c, tiny) + tiny
    root, reach = jnp.sqrt(scale), v + gradient / scale

    def narrow(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        held, target = carry
        left = gradient - _matmul(hessian, jnp.where(held, target - v, 0))
        system = jnp.where(held[:, None] | held, 0, hessian / root[:, None] / root)
        system += jnp.diag(jnp.where(held, 1, damping))
        newton = jnp.linalg.solve(system, jnp.where(held, 0, left / root)) / root
        target = jnp.where(held, target, v + newton)
        return held | (target < 0) | (target > c), jnp.clip(target, 0, c)

    start = (reach < 0) | (reach > c), jnp.clip(v + gradient / (scale * damping), 0, c)
    return jnp.asarray(lax.fori_loop(0, v.size, narrow, start)[1])


def _maximise(objective: Quadratic, constraints: Quadratic, c: Array, v: Array) -> Array:
    """Ascend the dual from v until the gap is round-off or no step helps; the least gap wins."""
    eps = float(np.finfo(v.dtype).eps)
    evaluate = partial(_evaluate, objective, constraints, c)
    State = tuple[_Point, _Point, Array, Array]  # current, best, damping, count

    def unfinished(state: State) -> Array:
        _, best, damping, count = state
        return (best.gap > 4 * eps * abs(best.value)) & (damping < 1 / eps) & (count < _ITERATIONS)

    def ascend(state: State) -> State:
        old, best, damping, count = state
        new = evaluate(_candidate(old, damping, c))
        move = new.v - old.v
        gain = old.gradient @ move
        noise = 8 * eps * (abs(old.value) + old.v @ abs(old.gradient))
        # Near the maximum values differ by less than rounding errors; slopes decide (Hager-Zhang).
        flat = (new.value >= old.value - noise) & (new.gradient @ move >= (2 * _KEEP - 1) * gain)
        rises = (gain > 0) & (flat | (new.value >= old.value + _KEEP * gain))
        current = jax.tree.map(partial(jnp.where, rises), new, old)
        best = jax.tree.map(partial(jnp.where, new.gap < best.gap), new, best)
        damping = jnp.where(rises, jnp.maximum(damping / 10, 8 * eps), damping * 10)
        return current, best, damping, count + 1

    start = evaluate(v), evaluate(v), jnp.asarray(1e-3, v.dtype), jnp.asarray(0)
    return lax.while_loop(unfinished, ascend, start)[1].v
