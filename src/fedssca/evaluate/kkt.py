"""How near a point is to a KKT point, free of units, and the prices of its limits.

With g_m = grad F_m over all training rows and l = max(|w|, |w - w(1)|) the length of the solution:

    a limit is active      where  F_m >= -0.01 l |g_m|   (a step of one per cent of l reaches it),
                           and where F_m counts rows, if one more row would break it
    prices                 nu = argmin |g_0 + sum_active nu_m g_m|,  nu >= 0
    r_1                    |g_0 + nu'g| / (|g_0| + sum nu_m |g_m|)
    r_2                    |g_0 + nu'g| l / the scale of F_0, see `objective_scale`
    violation              min(1, max F_m+ / (l |g_m|))
    residual               max(min(r_1, r_2), violation)

Multiplying F_0, an F_m, w or the features by a number changes none of these. r_1 compares gradients
with each other; r_2 says by what share of itself the objective still changes on the way (it speaks
where no limit is active, when r_1 is 1 by definition).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

__all__ = [
    "CONVERGED",
    "SETTLED",
    "Finished",
    "Optimality",
    "judge_prices",
    "more_rounds",
    "objective_scale",
    "optimality",
]

ACTIVE = 0.01
CONVERGED = 0.05
"""A residual at which training counts as finished."""
SETTLED = 0.002
"""The largest `Finished.gain` at which training counts as finished."""
FITS, AGREES = 0.1, 0.15
"""A price is shown where the gradients fit so well, or where two estimates agree so well."""


class Finished(NamedTuple):
    """What the last steps of a run, on all training rows, cost and found."""

    passes: int
    """Passes over all training rows, forward and backward."""
    multipliers: list[float] | None = None
    """The multipliers of the last quadratic problem; None if no step was accepted."""
    gain: float | None = None
    """By what share of itself the later half of the steps lowered the objective; None: unknown."""


class Optimality(NamedTuple):
    """See the module's formulas."""

    residual: float
    fitted: np.ndarray
    """nu, one price for each limit; 0 where it is not active."""
    active: np.ndarray
    mismatch: float
    """|g_0 + nu'g| / |g_0|: how badly the prices fit."""


def optimality(
    gradients: np.ndarray,
    objective: float,
    values: np.ndarray,
    length: float,
    grain: np.ndarray | float = 0.0,
) -> Optimality:
    """The residual and the fitted prices; `values` are F_1..F_M, limits subtracted.

    `objective` is the scale of the objective; see `objective_scale`. `grain` is by how much one row
    changes each F_m that counts rows, 0 for others.
    """
    lengths = np.linalg.norm(gradients, axis=1)
    first, others = gradients[0], gradients[1:]
    reach = np.maximum(length * lengths[1:], 1e-300)
    near = (values >= -ACTIVE * reach) | (values > -np.asarray(grain))
    active = near & (lengths[1:] > 0)
    fitted = np.zeros(len(values))
    if active.any() and lengths[0] > 0:
        basis, triangle = np.linalg.qr((others[active] / lengths[1:][active, None]).T)
        found, _ = scipy.optimize.nnls(triangle, -basis.T @ first / lengths[0])
        fitted[active] = found * lengths[0] / lengths[1:][active]
    rest = float(np.linalg.norm(first + fitted @ others))
    whole = float(lengths[0] + fitted @ lengths[1:])
    relative = rest / whole if whole > 0 else 0.0
    elastic = rest * length / objective if objective > 0 and length > 0 else np.inf
    broken = min(float((np.maximum(values, 0) / reach).max(initial=0.0)), 1.0)
    mismatch = rest / float(lengths[0]) if lengths[0] > 0 else 0.0
    return Optimality(max(min(relative, elastic), broken), fitted, active, mismatch)


def objective_scale(objective: float, rows: Sequence[Mapping[str, Any]]) -> float:
    """max(|F_0|, 0.1 |F_0 - F_0(w(1))|), from the evaluated rounds.

    An F_0 that falls to 0 is judged by how far it fell. The fall does not count if the rounds did
    not make nine tenths of it: then a start far away would make everything else look small.
    """
    if not rows or rows[0]["round"] != 0:
        return abs(objective)
    fell, missed = (abs(objective - float(row["objective"])) for row in (rows[0], rows[-1]))
    return max(abs(objective), 0.1 * fell) if missed <= 0.1 * fell else abs(objective)


def judge_prices(
    found: Optimality,
    own: Sequence[float],
    solved: Sequence[float] | None,
    titles: Sequence[str] = (),
) -> tuple[list[float | None], str]:
    """The prices to show, None where none can be trusted, and then why.

    `own` are the method's multipliers, `solved` those of the last quadratic problem on all rows.
    `titles` are what the limits are called.
    """
    prices: list[float | None] = [float(value) for value in found.fitted]
    if not found.active.any() or found.mismatch <= FITS:
        return prices, ""
    method = np.asarray(own if solved is None else solved, float)
    if not method.any():
        method = np.asarray(own, float)
    doubtful = []
    for m in np.flatnonzero(found.active).tolist():
        other = float(method[m])
        larger = max(abs(found.fitted[m]), abs(other))
        if larger and abs(found.fitted[m] - other) > AGREES * larger:
            doubtful.append((m, found.fitted[m], other))
            prices[m] = None
        elif larger:
            prices[m] = other
    if not doubtful:
        return prices, ""
    m, a, b = doubtful[0]
    title = titles[m] if titles else f"limit {m + 1}"
    return prices, (
        f"prices are withheld: the gradients at the returned model say {a:.3g}, the method says "
        f"{b:.3g} ({title}); train longer or with larger batches"
    )


def more_rounds(residual: float, rounds: int) -> int:
    """A rough number of further rounds, if the residual falls as 1 / t; at most ten times more."""
    factor = min(max(residual / CONVERGED - 1, 0.5), 10.0)
    step = 10 ** max(int(np.log10(max(rounds, 1))) - 1, 0)
    return int(np.ceil(factor * max(rounds, 1) / step) * step)
