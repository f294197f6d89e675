"""The largest of several F_m as the objective: an epigraph variable s is one more parameter.

    min F_0(w) + max_i F_i(w)    =    min F_0(w) + s    s.t.    F_i(w) - s <= 0

s is stored as the last entry u of w, s = level (1 + u), u = 0 at the start. Its gradient is as long
as a loss is large, and no length that a method takes from w(1) changes. To methods, evaluators and
certificates this is a constrained problem like any other: the price of F_i - s <= 0 is the weight
of F_i in the worst mixture of the F_i, and these weights add up to 1.

Three things are special. The terms known_m |w|^2 must not count u: the sampled means subtract
known_m u^2, exactly. For given w the best s is max_i F_i: `Problem.values` reports F_0 and the F_i
at that s, so that no point breaks F_i <= s and points are compared by their true maximum. And s is
no parameter of the model: `Problem.model` leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError, nearest
from fedssca.problem.problem import Array, Batch, Problem, Vertical

__all__ = ["balanced", "minimise_worst"]


def minimise_worst(problem: Problem, names: Sequence[str], level: float = 1.0) -> Problem:
    """Add the largest of some constraints' values to the objective, instead of limiting each.

    `names` are the constraints whose F_m (limits subtracted) are meant; the others stay limits.
    `level` is a rough size of the maximum at the start. The maximum is the objective alone if the
    problem's own objective is 0.

    >>> def terms(w, batch):
    ...     error = jnp.square(batch["x"] @ w - batch["y"])
    ...     return jnp.stack([jnp.where(batch["client"] == i, error, 0.0) for i in range(2)])
    >>> one = {"combine": [[0, 0], [1, 0], [0, 1]], "limits": [0, 0], "names": ["a", "b"]}
    >>> minimise_worst(custom_problem(terms, jnp.zeros(3), **one), ["a", "b"]).dimension
    4
    """
    for name in names:
        if name not in problem.names:
            raise UserError(f"no constraint is named {name!r}: {nearest(name, problem.names)}")
    if problem.worst or not names:
        raise UserError("give the names of at least one constraint, in one call for all")
    if not (np.isfinite(level) and level > 0):
        raise UserError(f"level = {level}: it must be a positive number")
    worst = [m for m, name in enumerate(problem.names, start=1) if name in names]
    size, count, scores = problem.dimension, problem.constraints + 1, problem.scores
    own = [m for m in range(count) if m == 0 or m in worst or problem.known[m]]
    others = [m for m in range(count) if m not in own]
    kept = np.flatnonzero(problem.combine[others].any(axis=0))
    # Means that other constraints use stay as they are; every F_m that contains u has its own.
    mixed = np.concatenate([np.eye(problem.combine.shape[1])[kept], problem.combine[own]])
    combine = np.zeros((count, len(mixed)))
    combine[others, : len(kept)] = problem.combine[others][:, kept]
    combine[own, len(kept) :] = np.eye(len(own))
    signs = np.array([1.0 if m == 0 else -float(m in worst) for m in own])
    squares = -problem.known[own]

    def lifted(values: Array, u: Array) -> Array:
        """The terms of the new problem from those of the old one, (K, B), and u."""
        s = level * (1 + u)
        constant = jnp.asarray(signs, u.dtype) * s + jnp.asarray(squares, u.dtype) * u * u
        means = jnp.asarray(mixed, values.dtype) @ values
        return means.at[len(kept) :].add(constant.astype(values.dtype)[:, None])

    return replace(
        problem,
        terms=lambda w, batch: lifted(problem.terms(w[:size], batch), w[size]),
        start=jnp.append(problem.start, jnp.zeros(1, problem.start.dtype)),
        unravel=lambda w: problem.unravel(w[:size]),
        combine=combine,
        measure=lambda w, batch: problem.measure(w[:size], batch),
        vertical=_split(problem.vertical, size, lifted) if problem.vertical else None,
        worst=tuple(worst),
        scores=None if scores is None else lambda w, batch: scores(w[:size], batch),
        of_scores=None,
    )


def balanced(problem: Problem, gradients: np.ndarray) -> np.ndarray:
    """The gradients of F_0..F_M, (M+1, d), with u in a unit that does not depend on `level`.

    In this unit s has a gradient as long as the longest of the F_i. In a KKT residual that compares
    lengths of gradients, a long gradient of s would hide how far those of the model are from 0.
    """
    if not problem.worst:
        return gradients
    own = np.linalg.norm(gradients[list(problem.worst), :-1], axis=1).max()
    level = float(gradients[0, -1])
    return np.concatenate([gradients[:, :-1], gradients[:, -1:] * (own / level)], axis=1)


def _split(split: Vertical, size: int, lifted: Callable[[Array, Array], Array]) -> Vertical:
    """The vertical form: u is the last entry of w_0, which no party but the server owns."""
    scores, measure = split.scores, split.measure

    def head(w: Array, hs: Sequence[Array], batch: Batch) -> Array:
        return lifted(split.head(w[:-1], hs, batch), w[-1])

    return replace(
        split,
        head=head,
        blocks=(np.append(split.blocks[0], size), *split.blocks[1:]),
        scores=None if scores is None else lambda w, hs: scores(w[:-1], hs),
        measure=None if measure is None else lambda w, hs, batch: measure(w[:-1], hs, batch),
    )
