"""What to optimise: sampled terms, how they combine into an objective and constraints, and limits.

    minimise    F_0(w)
    subject to  F_m(w) <= 0,    m = 1..M

    F_m(w) = sum_k combine[m, k] * mean_n f_k(w; x_n)  +  known[m] |w|^2  -  limit[m]

All f_k come from one forward pass. What only the server needs (`combine`, `known`, `limit`) never
reaches a client, so constraints that share a mean (a gap <= eps from both sides) share its message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedssca.errors import UserError

__all__ = [
    "Array",
    "Batch",
    "Measure",
    "Params",
    "Problem",
    "Rate",
    "Terms",
    "Vertical",
    "custom_problem",
    "vertical_problem",
]

Array: TypeAlias = jax.Array
Params: TypeAlias = Any
Batch: TypeAlias = dict[str, Any]
"""Named columns with one row a sample ("x", "y", ...), plus "weight": what a sample counts."""
Terms: TypeAlias = Callable[[Array, Batch], Array]
"""(flat w, batch) -> the K sampled terms of every sample, (K, B)."""
Rate: TypeAlias = tuple[float, Array, Array]
"""weight * sum(numerator) / sum(denominator), both given for every sample."""
Measure: TypeAlias = Callable[[Array, Batch], dict[str, Sequence[Rate]]]
"""(flat w, batch) -> what to report under which name: sums of rates."""


@dataclass(frozen=True)
class Vertical:
    """The same terms written for parties that hold columns: f = head(w_0, (h_i)_i, batch).

    Party i evaluates h_i = locals[i](w_i, x_i), where x_i = x[:, features[i]] and the block
    w_i = w[blocks[i + 1]]; w_0 = w[blocks[0]]. The blocks partition the positions of w.
    """

    locals: tuple[Callable[[Array, Array], Array], ...]
    head: Callable[[Array, Sequence[Array], Batch], Array]
    blocks: tuple[np.ndarray, ...]
    features: tuple[np.ndarray, ...]
    linear: bool = False
    """h_i is linear in w_i with the Jacobian x_i (what the one-step collection then exposes)."""


@dataclass(frozen=True)
class Problem:
    """An objective and M constraints over sampled terms; see the module's formula.

    Build one with `custom_problem` (any function of a pytree and a batch), `vertical_problem`
    (parties hold columns) or `fedssca.models.classifier` (ready-made networks and constraints).
    """

    terms: Terms
    start: Array
    unravel: Callable[[Array], Params]
    combine: np.ndarray
    known: np.ndarray
    limits: np.ndarray
    names: tuple[str, ...]
    measure: Measure
    vertical: Vertical | None = None

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        return int(self.start.size)

    @property
    def constraints(self) -> int:
        """M, the number of constraints."""
        return len(self.limits)

    @property
    def valued(self) -> np.ndarray:
        """The sampled terms whose values the server needs: those that a constraint uses."""
        return np.flatnonzero(self.combine[1:].any(axis=0))

    def measured(self, values: Array, w: Array) -> Array:
        """F_1..F_M at w from the sampled means that clients send (those of `valued`)."""
        rows = jnp.asarray(self.combine[1:, self.valued], w.dtype)
        known, limits = (jnp.asarray(a, w.dtype) for a in (self.known[1:], self.limits))
        return rows @ values + known * (w @ w) - limits

    def values(self, means: Array, norm_sq: Array) -> Array:
        """F_0..F_M from the K sampled means and |w|^2 (limits already subtracted)."""
        limits = np.concatenate([[0.0], self.limits])
        return jnp.asarray(self.combine) @ means + self.known * norm_sq - limits


def custom_problem(
    terms: Callable[[Params, Batch], Array],
    params: Params,
    *,
    limits: Sequence[float] = (),
    combine: np.ndarray | None = None,
    known: Sequence[float] | float = 0.0,
    names: Sequence[str] | None = None,
    measure: Callable[[Params, Batch], dict[str, Sequence[Rate]]] | None = None,
) -> Problem:
    """A problem from a function of (params, batch) that returns the per-sample terms, (K, B).

    By default row 0 is the objective and row m a constraint, F_m = mean - limits[m-1]. `known` adds
    known[m] |w|^2 to F_m; a number means the objective's. `combine` (M+1, K) builds the F_m from
    the means in any other way: `combine=[[0], [1]], known=1.0` is min |w|^2 s.t. mean <= U.

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
    flat, unravel = ravel_pytree(params)

    def reported(w: Array, batch: Batch) -> dict[str, Sequence[Rate]]:
        return {} if measure is None else measure(unravel(w), batch)

    return Problem(
        terms=lambda w, batch: terms(unravel(w), batch),
        start=flat,
        unravel=unravel,
        combine=matrix,
        known=coefficients,
        limits=np.asarray(limits, float),
        names=tuple(names or (f"constraint {m}" for m in range(1, count + 1))),
        measure=reported,
    )


def vertical_problem(
    locals: Sequence[Callable[[Params, Array], Array]],
    head: Callable[[Params, Sequence[Array], Batch], Array],
    params: Sequence[Params],
    features: Sequence[np.ndarray],
    **settings: Any,
) -> Problem:
    """A problem for parties that hold columns: terms = head(w_0, [locals[i](w_i, x_i)], batch).

    `params` is (w_0, w_1, ..., w_I), each any pytree; `features[i]` are party i's columns of x;
    `settings` are those of `custom_problem`.
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
    )
    return Problem(**{**vars(base), "vertical": split})
