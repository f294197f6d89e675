"""A richer surrogate: a curvature for every parameter, measured by the clients."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.methods.algorithm import Message
from fedssca.methods.solver import Quadratic
from fedssca.methods.surrogate import Surrogate, cast, gradients, per_term, stack
from fedssca.problem.problem import Array, Batch, Problem, Terms

__all__ = ["diagonal"]


def diagonal(
    problem: Problem, tau: float | Sequence[float], *, damping: float = 1.0, chunk: int = 32
) -> Surrogate:
    """First order plus a curvature for every parameter: the empirical Fisher diagonal.

        fbar(w; w') = f(w') + grad f(w')'(w - w') + sum_j (tau + damping D_j) (w_j - w'_j)^2,
        D_j = 1/2 mean_n (d f(w'; x_n) / d w_j)^2,

    half the Gauss-Newton diagonal of a likelihood. Steep parameters take short steps, flat ones
    long. Clients send one more vector per term. Known terms are kept exact.
    """
    taus = per_term(problem, tau)
    combine, valued = problem.combine, problem.combine[:, problem.valued] * 1.0
    valued[0] = 0.0
    sampled = combine.any(axis=1)

    def zero(w: Array) -> tuple[Array, Array, Array]:
        rows = jnp.zeros((len(combine), w.size), w.dtype)
        return rows, jnp.zeros(len(combine), w.dtype), rows

    def message(terms: Terms, w: Array, batch: Batch) -> Message:
        def squares(sample: Batch) -> Array:
            row = jax.tree.map(lambda column: column[None], sample)
            return sample["weight"] * jnp.square(jax.jacrev(terms)(w, row)[:, 0])

        q = gradients(problem, terms, w, batch)
        fisher = jax.lax.map(squares, batch, batch_size=chunk).sum(0).astype(w.dtype)
        return q._replace(vectors={**q.vectors, "fisher": fisher})

    def recentre(w: Array, q: Message) -> tuple[Array, Array, Array]:
        slope = cast(combine, w) @ q.vectors["gradient"]
        bend = cast(taus * sampled, w)[:, None] + damping / 2 * (
            cast(np.abs(combine), w) @ q.vectors["fisher"]
        )
        value = cast(valued, w) @ q.scalars
        return slope - 2 * bend * w, value - slope @ w + bend @ jnp.square(w), bend

    def function(mixed: tuple[Array, Array, Array]) -> Quadratic:
        b, c, bend = mixed
        curvature = bend + cast(problem.known, b)[:, None]
        return stack(problem, np.arange(len(combine)), c, b, curvature)

    return Surrogate(zero, message, recentre, function)
