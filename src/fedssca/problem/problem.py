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

__all__ = [
    "Array",
    "Batch",
    "Measure",
    "Params",
    "Problem",
    "Rate",
    "Terms",
    "Vertical",
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

    Party i evaluates h_i = `locals[i](w_i, x_i)`, where x_i = x[:, features[i]] and the block
    w_i = w[blocks[i + 1]]; w_0 = w[blocks[0]]. The blocks partition the positions of w.
    """

    locals: tuple[Callable[[Array, Array], Array], ...]
    head: Callable[[Array, Sequence[Array], Batch], Array]
    blocks: tuple[np.ndarray, ...]
    features: tuple[np.ndarray, ...]
    linear: bool = False
    """h_i is linear in w_i with the Jacobian x_i (what the one-step collection then exposes)."""
    additive: bool = False
    """The head depends on the h_i only through their sum, so that nothing else need be shown."""
    scores: Callable[[Array, Sequence[Array]], Array] | None = None
    """(w_0, (h_i)_i) -> scores, where the model has them: what a joint prediction needs."""
    measure: Callable[[Array, Sequence[Array], Batch], dict[str, Sequence[Rate]]] | None = None
    """(w_0, (h_i)_i, batch) -> the problem's measures, for parties that evaluate together."""


@dataclass(frozen=True)
class Problem:
    """An objective and M constraints over sampled terms; see the module's formula.

    Build one with `custom_problem` (any function of a pytree and a batch), `vertical_problem`
    (parties hold columns) or `classifier` (ready-made networks and constraints).
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
