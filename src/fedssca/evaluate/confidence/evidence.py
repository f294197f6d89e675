"""What calibration rows say of the quantities that limits bound: sums over rows, nothing else.

A quantity is sum_j a_j p_j with a_j = 1 or -1, where p_j is the mean of a value over some of the
rows: a rate (values 0 and 1) or a mean loss (values 0 .. clip). Of each p_j are added up: the
values, the number of rows, and the sums S(theta) of the bets on x and on 1 - x, where x is the
value divided by the clip (`means`). Sums over the rows of different sites add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.evaluate.confidence.means import BET_WEIGHTS, Floats, chosen_bets
from fedssca.evaluate.estimate import Estimate
from fedssca.evaluate.passes import over_chunks
from fedssca.evaluate.tally import Tally
from fedssca.problem.limits import StatedLimit
from fedssca.problem.problem import Array, Batch, Problem, Rate

__all__ = [
    "COLUMNS",
    "ROUNDING",
    "Bets",
    "Evidence",
    "EvidencePass",
    "bet_arrays",
    "bets_for",
    "clips_of",
    "evidence_added",
    "evidence_pass",
    "evidence_sums",
    "joined_evidence",
    "order_of",
    "signs_of",
]

COUNT = len(BET_WEIGHTS)
COLUMNS = 3 + 2 * COUNT
"""The number of sums of each mean of a quantity."""
ROUNDING = 1e-4
"""Values that are this far from 0 and 1, all rows together, count as 0 and 1."""


class Evidence(NamedTuple):
    """The sums of one quantity over some calibration rows."""

    weights: Floats
    """a, (J,)."""
    top: Floats
    """The sums of x, (J,)."""
    rows: Floats
    """The numbers of rows, (J,)."""
    bets: Floats
    """theta on x and on 1 - x, (J, 2, 3)."""
    sums: Floats
    """S(theta) of each, (J, 2, 3)."""
    clip: float
    """The value that x = 1 stands for; larger values count as this."""
    counted: bool
    """All values are 0 or 1."""
    noise: float = 0.0
    """The standard deviation of the noise on the sums of x and of 1 - x; 0: they are exact."""

    @property
    def value(self) -> float | None:
        """The quantity on these rows; None if no row counts for one of its means."""
        if not (self.rows > 0).all():
            return None
        return float(self.clip * (self.weights @ (self.top / self.rows)))

    @property
    def counts(self) -> list[list[float]]:
        """The sum of values and the number of rows of every mean."""
        tops = self.clip * self.top
        if self.noise:
            return [[float(k), float(n)] for k, n in zip(tops, self.rows, strict=True)]
        if self.counted:
            return [[int(k), int(n)] for k, n in zip(np.rint(tops), self.rows, strict=True)]
        return [[float(k), int(n)] for k, n in zip(tops, self.rows, strict=True)]


class Bets(NamedTuple):
    """How the values of a quantity are scaled, and the bets on them, fixed before testing."""

    clip: float
    theta: Floats
    """(J, 2, 3)."""


EvidencePass = Callable[[Array, Batch, Mapping[str, Bets]], list[dict[str, Evidence]]]
"""(w, rows, bets) -> the evidence of all rows, then that of every client, by quantity."""


def bets_for(
    limits: Sequence[StatedLimit],
    train: Tally,
    rows: Mapping[str, Floats],
    delta: float,
    clip: float,
) -> dict[str, Bets]:
    """The bets on the quantities of limits, from their means and variances on training rows.

    `rows` are the numbers of calibration rows of each of their means.
    """
    found = {}
    for limit in limits:
        known = train.estimate(train.sums.train, limit.quantity)
        size = clip if limit.positive else 1.0
        count = len(rows[limit.quantity])
        theta = np.zeros((count, 2, COUNT))
        for j in range(count):
            if limit.whole and j:  # the sums of the rest are differences: the same bets are needed
                theta[j] = theta[0]
                continue
            mean, variance = _moments(known, j, size)
            for side, at in enumerate((mean, 1 - mean)):
                theta[j, side] = chosen_bets(at, variance, float(rows[limit.quantity][j]), delta)
        found[limit.quantity] = Bets(size, theta)
    return found


def _moments(known: Estimate | None, j: int, size: float) -> tuple[float, float]:
    if known is None or not known.sums[j, 1] > 0:
        return 0.5, 0.25
    top, rows, squares = known.sums[j]
    mean = min(max(top / rows / size, 0.0), 1.0)
    return mean, min(max(squares / rows / size**2 - mean * mean, 0.0), 0.25)


def evidence_pass(problem: Problem, clients: int) -> EvidencePass:
    """The sums of the quantities over all rows and over those of each of so many clients."""
    sums, signs = evidence_sums(problem, clients), dict[str, Floats]()

    def run(w: Array, rows: Batch, bets: Mapping[str, Bets]) -> list[dict[str, Evidence]]:
        if not signs:
            signs.update(signs_of(problem, rows))
        found = jax.device_get(sums(w, rows, bet_arrays(signs, bets, w.dtype), clips_of(bets)))
        return [
            joined_evidence(
                {name: np.stack([each[at] for each in means]) for name, means in found.items()},
                signs,
                bets,
                w.dtype,
            )
            for at in range(1 + clients)
        ]

    return run


def evidence_sums(problem: Problem, clients: int) -> Callable[..., dict[str, list[Array]]]:
    """(w, rows, theta, clips) -> for each quantity and mean (1 + clients, COLUMNS) sums."""

    @jax.jit
    def sums(w: Array, rows: Batch, theta: Mapping[str, Array], clips: Mapping[str, float]) -> Any:
        def part(chunk: Batch) -> Any:
            return evidence_added(problem.measure(w, chunk), chunk, theta, clips, clients)

        return over_chunks(rows, part)

    return sums


def evidence_added(
    measures: Mapping[str, Sequence[Rate]],
    batch: Batch,
    theta: Mapping[str, Array],
    clips: Mapping[str, Any],
    clients: int = 0,
) -> dict[str, list[Array]]:
    """The sums over a batch: x, the number of rows, how far x is from 0 and 1, and the bets."""
    owner = batch["client"][None]
    masks = jnp.concatenate([jnp.ones_like(owner, bool), owner == jnp.arange(clients)[:, None]])

    def one(top: Array, bottom: Array, bets: Array, clip: Array) -> Array:
        x = jnp.clip(top / clip, 0, 1)
        logs = [jnp.log1p(-bets[k] * v[:, None]) for k, v in enumerate((x, 1 - x))]
        whole = jnp.abs(top / clip - jnp.rint(x)) * bottom  # also far outside 0 and 1
        columns = jnp.concatenate([jnp.stack([x, jnp.ones_like(x), whole], axis=1), *logs], axis=1)
        return (masks * batch["weight"] * bottom).astype(columns.dtype) @ columns

    return {
        name: [
            one(top, bottom, theta[name][j], clips[name])
            for j, (_, top, bottom) in enumerate(measures[name])
        ]
        for name in theta
    }


def bet_arrays(
    signs: Mapping[str, Floats], bets: Mapping[str, Bets], dtype: Any
) -> dict[str, np.ndarray]:
    """theta of every quantity, (J, 2, 3), in the order of the measures."""
    return {
        name: np.asarray(each.theta[np.argsort(order_of(signs[name]))], dtype)
        for name, each in bets.items()
    }


def clips_of(bets: Mapping[str, Bets]) -> dict[str, float]:
    """The clip of every quantity."""
    return {name: each.clip for name, each in bets.items()}


def joined_evidence(
    sums: Mapping[str, np.ndarray],
    signs: Mapping[str, Floats],
    bets: Mapping[str, Bets],
    dtype: Any,
) -> dict[str, Evidence]:
    """The evidence in sums over rows, (J, COLUMNS) for every quantity, as `evidence_added` has."""
    given, found = bet_arrays(signs, bets, dtype), {}
    for name, each in bets.items():
        order = order_of(signs[name])
        own = np.asarray(sums[name], float)[order]
        found[name] = Evidence(
            weights=signs[name][order],
            top=own[:, 0],
            rows=np.rint(own[:, 1]),
            bets=np.asarray(given[name], float)[order],
            sums=own[:, 3:].reshape(-1, 2, COUNT),
            clip=each.clip,
            counted=bool((own[:, 2] <= ROUNDING).all()) and each.clip == 1.0,
        )
    return found


def order_of(signs: Floats) -> np.ndarray:
    """The means of a quantity in order: of a gap, what is subtracted comes last."""
    return np.argsort(-signs, kind="stable")


def signs_of(problem: Problem, rows: Batch) -> dict[str, Floats]:
    """The weights a_j of every quantity, found without computing anything."""
    found: dict[str, Floats] = {}

    def look(point: Array, batch: Batch) -> Array:
        given = problem.measure(point, batch)
        found.update({k: np.array([a for a, _, _ in v], float) for k, v in given.items()})
        return point

    jax.eval_shape(look, problem.start, {name: column[:1] for name, column in rows.items()})
    return found
