"""The dual of a round's convex problem, for any number of limits, without a matrix to factorise."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedssca.problem.problem import Array

__all__ = ["ascend"]


def ascend(f: Array, gram: Array, bends: Array, cap: Array, v: Array) -> Array:
    """argmax v'f - u'G u / (4 u'A) over 0 <= v <= cap, by Newton steps in one v_m after another.

    The function is concave, so that this converges; it starts from the v of the round before.
    """
    count = len(f)

    def one(k: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        (v, pull), i = now, k % count
        u = jnp.concatenate([jnp.ones(1, v.dtype), v])
        a, square, b, own = u @ bends, u @ pull, bends[i + 1], gram[i + 1, i + 1]
        slope = f[i] - pull[i + 1] / (2 * a) + b * square / (4 * a * a)
        bend = own - 2 * b * pull[i + 1] / a + b * b * square / (a * a)
        bend = jnp.maximum(jnp.maximum(bend, 0.3 * own) / (2 * a), 1e-30)
        new = jnp.clip(v[i] + slope / bend, 0, cap[i])
        return v.at[i].set(new), pull + gram[i + 1] * (new - v[i])

    v = jnp.clip(v, 0, cap)
    begin = v, gram @ jnp.concatenate([jnp.ones(1, v.dtype), v])
    sweeps = 12 if count <= 10 else 6
    return jax.lax.fori_loop(0, sweeps * count, one, begin)[0]
