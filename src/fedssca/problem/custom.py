"""Problems from your own functions of (params, batch), for clients with rows or with columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedssca.errors import UserError
from fedssca.problem.limits import Limit, Side, sides
from fedssca.problem.problem import Array, Batch, Params, Problem, Rate, Vertical

__all__ = ["custom_problem", "vertical_problem"]


def custom_problem(
    terms: Callable[[Params, Batch], Array],
    params: Params,
    *,
    limits: Sequence[Limit] = (),
    combine: np.ndarray | None = None,
    known: Sequence[float] | float = 0.0,
    names: Sequence[str] | None = None,
    measure: Callable[[Params, Batch], dict[str, Sequence[Rate]]] | None = None,
) -> Problem:
    """A problem from a function of (params, batch) that returns the per-sample terms, (K, B).

    By default row 0 is the objective and row m is a constraint, F_m = mean - limits[m-1]. `known`
    adds known[m] |w|^2 to F_m; a single number is added to the objective. The matrix `combine`,
    (M+1, K), forms the F_m from the means in another way: with limits=[U], combine=[[0], [1]] and
    known=1.0 the problem is min |w|^2 s.t. mean <= U.

    A pair (low, high) in `limits` bounds a mean from both sides, and None leaves a side open. Both
    sides share the terms; the lower one is a constraint of its own, named `<name>_lower`. `batch`
    holds the columns of the rows, among them "client", the number of the client that holds the row.

    >>> def terms(params, batch):
    ...     return jnp.square(batch["x"] @ params - batch["y"])[None]
    >>> custom_problem(terms, jnp.zeros(3), known=0.1).dimension
    3
    """
    count = len(limits)
    matrix = np.eye(count + 1) if combine is None else np.asarray(combine, float)
    if matrix.ndim != 2 or len(matrix) != count + 1:
        raise UserError(
            f"combine has shape {matrix.shape}: it needs a row for the objective and one for each "
            f"of the {count} limits, ({count + 1}, number of terms)"
        )
    if np.size(known) > count + 1 or len(names or limits) != count:
        raise UserError(f"known and names must fit the {count} limits (known: the objective first)")
    coefficients = np.zeros(count + 1)
    coefficients[: np.size(known)] = known
    if (coefficients < 0).any():
        raise UserError(f"known = {known}: the coefficients of |w|^2 must not be negative")
    called = names or [f"constraint {m}" for m in range(1, count + 1)]
    parts: list[tuple[int, Side]] = [
        (m, side)
        for m, (name, limit) in enumerate(zip(called, limits, strict=True), start=1)
        for side in sides(name, limit)
    ]
    for m, side in parts:
        if side.sign < 0 and coefficients[m]:
            raise UserError(
                f"constraint {side.name!r}: a lower limit cannot have a term known |w|^2, whose "
                "negative is not convex; set known to 0 there"
            )
    rows = [0, *(m for m, _ in parts)]
    signs = np.array([1.0, *(side.sign for _, side in parts)])
    flat, unravel = ravel_pytree(params)

    bounds = tuple(side.bound(called[m - 1]) for m, side in parts)

    def reported(w: Array, batch: Batch) -> dict[str, Sequence[Rate]]:
        """What the user measures, and the limited means themselves."""
        own = {} if measure is None else measure(unravel(w), batch)
        if not bounds:
            return own
        means = jnp.asarray(matrix[1:]) @ terms(unravel(w), batch)
        means += (jnp.asarray(coefficients[1:]) * (w @ w))[:, None]
        one = jnp.ones_like(means[0])
        return {name: [(1.0, mean, one)] for name, mean in zip(called, means, strict=True)} | own

    return Problem(
        terms=lambda w, batch: terms(unravel(w), batch),
        start=flat,
        unravel=unravel,
        combine=signs[:, None] * matrix[rows],
        known=coefficients[rows],
        limits=np.array([side.limit for _, side in parts]),
        names=tuple(side.name for _, side in parts),
        measure=reported,
        bounds=bounds,
    )


def vertical_problem(
    locals: Sequence[Callable[[Params, Array], Array]],
    head: Callable[[Params, Sequence[Array], Batch], Array],
    params: Sequence[Params],
    features: Sequence[np.ndarray],
    *,
    additive: bool = False,
    **settings: Any,
) -> Problem:
    """A problem for parties that hold columns: `terms = head(w_0, [locals[i](w_i, x_i)], batch)`.

    `params` is (w_0, w_1, ..., w_I), each of which may be any pytree. `features[i]` are the columns
    of x that party i holds. `additive` declares that the head depends on the h_i only through their
    sum, which allows parties to hide them (`privacy.secure_sum`). `settings` are those of
    `custom_problem`.
    """
    flats = [ravel_pytree(part) for part in params]
    unravels = [unravel for _, unravel in flats]
    ends = np.cumsum([flat.size for flat, _ in flats])
    blocks = tuple(np.split(np.arange(ends[-1]), ends[:-1]))

    def joined(parts: Sequence[Params], batch: Batch) -> Array:
        hs = [
            h(w, batch["x"][:, own]) for h, w, own in zip(locals, parts[1:], features, strict=True)
        ]
        return head(parts[0], hs, batch)

    def local(i: int) -> Callable[[Array, Array], Array]:
        return lambda w, x: locals[i](unravels[i + 1](w), x)

    base = custom_problem(joined, list(params), **settings)
    split = Vertical(
        locals=tuple(local(i) for i in range(len(locals))),
        head=lambda w, hs, batch: head(unravels[0](w), hs, batch),
        blocks=blocks,
        features=tuple(np.asarray(own) for own in features),
        additive=additive,
    )
    return replace(base, vertical=split)
