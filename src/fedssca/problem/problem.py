"""What to optimise: sampled terms, and how they combine into an objective and constraints.

    minimise    F_0(w)
    subject to  F_m(w) <= 0,    m = 1..M

    F_m(w) = sum_k combine[m, k] * mean_n f_k(w; x_n)  +  known[m] |w|^2  -  limit[m]

All f_k come from one forward pass. Clients send the means of the f_k; `combine`, `known` and
`limit` are used by the server only. Constraints that use the same mean, such as the two sides of
|gap| <= eps, therefore share its message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.problem.limits import Bound

__all__ = [
    "Array",
    "Batch",
    "Kept",
    "Measure",
    "Params",
    "Part",
    "Problem",
    "Rate",
    "Terms",
    "Vertical",
]

Array: TypeAlias = jax.Array
Params: TypeAlias = Any
Batch: TypeAlias = dict[str, Any]
"""Columns by name ("x", "y", ...) with one row per sample, and "weight", the sample weights."""
Terms: TypeAlias = Callable[[Array, Batch], Array]
"""(flat w, batch) -> the K sampled terms of every sample, (K, B)."""
Rate: TypeAlias = tuple[float, Array, Array]
"""(weight, numerator, denominator) for weight * sum(numerator) / sum(denominator) over samples."""
Measure: TypeAlias = Callable[[Array, Batch], dict[str, Sequence[Rate]]]
"""(flat w, batch) -> the quantities to report by name, each a sum of rates."""


class Part(NamedTuple):
    """Some of the rows, such as a group, whose results are also reported by themselves."""

    column: str
    """What divides the rows: the name of a column."""
    title: str
    """What the rows have in common: the value in that column, as people read it."""
    own: Callable[[Batch], Array]
    """batch -> whether a row belongs to the part."""


class Kept(NamedTuple):
    """Where only a part of the parameters is trained: w has the entries at `places`."""

    places: np.ndarray
    start: Array
    """All parameters; those at other places stay as they are here."""

    def whole(self, w: Array) -> Array:
        """All parameters, with those of w at their places."""
        return jnp.asarray(self.start, w.dtype).at[self.places].set(w)


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
    """Whether h_i is linear in w_i with Jacobian x_i, so that the open collection reveals x_i."""
    additive: bool = False
    """Whether the head depends on the h_i only through their sum, so that the sum is enough."""
    scores: Callable[[Array, Sequence[Array]], Array] | None = None
    """(w_0, (h_i)_i) -> scores, for joint predictions; None if the model has no scores."""
    measure: Callable[[Array, Sequence[Array], Batch], dict[str, Sequence[Rate]]] | None = None
    """(w_0, (h_i)_i, batch) -> the quantities to report, for parties that evaluate together."""


@dataclass(frozen=True, eq=False)
class Problem:
    """An objective and M constraints over sampled terms; the module docstring has the formula.

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
    worst: tuple[int, ...] = ()
    """The m whose largest F_m is minimised, see `minimise_worst`. Then F_m stands for F_m - s, and
    s is a multiple of one plus the last entry of w."""
    scores: Callable[[Array, Batch], Array] | None = None
    """(flat w, batch) -> scores (B, L), also in the vertical form; None without scores."""
    of_scores: Callable[[Array, Batch], Array] | None = None
    """(scores, batch) -> the terms, (K, B): terms(w, batch) = of_scores(scores(w, batch), batch).
    None: this is not known."""
    stepwise: tuple[int, ...] = ()
    """The indices of the constraints (from 0) whose values may be counts of rows."""
    bounds: tuple[Bound, ...] = ()
    """What each constraint demands of which reported quantity."""
    parts: tuple[Part, ...] = ()
    """The groups of rows that results are also reported for."""
    growth: float = 1.0
    """How many times the curvature may grow in training, for which calibrated steps allow."""
    notes: tuple[str, ...] = ()
    """What users should know of the limits, such as clients that a limit leaves out."""
    rooted: frozenset[str] = frozenset()
    """The measures of which the square root is reported."""
    report: Callable[[Mapping[str, float]], dict[str, float]] = dict
    """The measures of a set of rows -> what is reported of them."""
    counted: frozenset[str] = frozenset()
    """The measures to which a row adds 0 or 1; a row may add any number to others."""
    steady: bool = False
    """The curvature of the loss does not fall as rows are fitted, as that of squared errors."""
    plain: bool = True
    """The loss is the usual one of one label per row, and all rows weigh the same."""
    kinds: Callable[[int], int] | None = None
    """The number of scores -> how many values y can have; None: y is no class or label set."""
    at_least: float | None = None
    """The least value that y can have; None: it can be any number."""
    over_all: frozenset[str] = frozenset()
    """The measures whose denominator is the number of all rows."""
    kept: Kept | None = None
    """Given where some parameters of the model are not trained, see `parts.narrowed`."""
    personal: Any = None
    """The parts of the model that stay at the clients (`rounds.personal`); None: there are none."""
    programs: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    """The compiled functions of this problem, see `once_per_problem`."""

    @property
    def dimension(self) -> int:
        """d, the number of parameters, with the epigraph variable if there is one."""
        return int(self.start.size)

    def model(self, w: Array) -> Array:
        """All parameters of the model: w with those that are not trained, and without the epigraph
        variable if there is one."""
        whole = w if self.kept is None else self.kept.whole(w)
        return whole[: len(whole) - bool(self.worst)]

    def extended(self, model: Array) -> Array:
        """A point w of this problem from all parameters of the model, with s = 0 if there is s."""
        w = jnp.append(model, -jnp.ones(1, model.dtype)) if self.worst else model
        return w if self.kept is None else w[self.kept.places]

    @property
    def constraints(self) -> int:
        """M, the number of constraints."""
        return len(self.limits)

    @property
    def valued(self) -> np.ndarray:
        """The indices of the sampled terms that constraints use; the server needs their values."""
        return np.flatnonzero(self.combine[1:].any(axis=0))

    def measured(self, values: Array, w: Array) -> Array:
        """F_1..F_M at w from the sampled means of the terms in `valued`, which clients send."""
        rows = jnp.asarray(self.combine[1:, self.valued], w.dtype)
        known, limits = (jnp.asarray(a, w.dtype) for a in (self.known[1:], self.limits))
        return rows @ values + known * (w @ w) - limits

    def values(self, means: np.ndarray, norm_sq: float) -> np.ndarray:
        """F_0..F_M from the K sampled means and |w|^2 (limits already subtracted).

        An epigraph variable counts as if it had its best value, which is the largest of the F_m.
        Values of a model that diverged are infinite or not a number, without a warning.
        """
        combine, known, limits = (
            np.asarray(numbers, means.dtype)
            for numbers in (self.combine, self.known, np.concatenate([[0.0], self.limits]))
        )
        with np.errstate(over="ignore", invalid="ignore"):
            size = means.dtype.type(norm_sq)
            values = np.asarray(jnp.matmul(combine, means)) + known * size - limits
            if self.worst:
                rows = np.array(self.worst)
                above = values[rows].max()
                values[0] += above
                values[rows] -= above
        return values
