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
from fedssca.problem.problem import Array, Batch, Problem

__all__ = ["Bets", "Evidence", "EvidencePass", "bets_for", "evidence_pass", "signs_of"]

COUNT = len(BET_WEIGHTS)


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

    @jax.jit
    def sums(w: Array, rows: Batch, theta: Mapping[str, Array], clips: Mapping[str, Array]) -> Any:
        def part(chunk: Batch) -> Any:
            owner = chunk["client"][None]
            masks = jnp.concatenate(
                [jnp.ones_like(owner, bool), owner == jnp.arange(clients)[:, None]]
            )
            measures = problem.measure(w, chunk)

            def one(top: Array, bottom: Array, bets: Array, clip: Array) -> Array:
                x = jnp.clip(top / clip, 0, 1)
                logs = [jnp.log1p(-bets[k] * v[:, None]) for k, v in enumerate((x, 1 - x))]
                whole = jnp.abs(x - jnp.rint(x)) * bottom
                columns = jnp.concatenate(
                    [jnp.stack([x, jnp.ones_like(x), whole], axis=1), *logs], axis=1
                )
                return (masks * chunk["weight"] * bottom).astype(columns.dtype) @ columns

            return {
                name: [
                    one(top, bottom, theta[name][j], clips[name])
                    for j, (_, top, bottom) in enumerate(measures[name])
                ]
                for name in theta
            }

        return over_chunks(rows, part)

    def run(w: Array, rows: Batch, bets: Mapping[str, Bets]) -> list[dict[str, Evidence]]:
        signs = signs_of(problem, rows)
        order = {name: np.argsort(-signs[name], kind="stable") for name in bets}
        given = {
            name: jnp.asarray(each.theta[np.argsort(order[name])], w.dtype)
            for name, each in bets.items()
        }
        clips = {name: jnp.asarray(each.clip, w.dtype) for name, each in bets.items()}
        found = jax.device_get(sums(w, rows, given, clips))

        def line(at: int, name: str) -> Evidence:
            own = np.array([each[at] for each in found[name]], float)[order[name]]
            return Evidence(
                weights=signs[name][order[name]],
                top=own[:, 0],
                rows=np.rint(own[:, 1]),
                bets=np.asarray(given[name], float)[order[name]],
                sums=own[:, 3:].reshape(-1, 2, COUNT),
                clip=bets[name].clip,
                counted=bool((own[:, 2] <= 1e-4).all()) and bets[name].clip == 1.0,
            )

        return [{name: line(at, name) for name in bets} for at in range(1 + clients)]

    return run


def signs_of(problem: Problem, rows: Batch) -> dict[str, Floats]:
    """The weights a_j of every quantity, found without computing anything."""
    found: dict[str, Floats] = {}

    def look(point: Array, batch: Batch) -> Array:
        given = problem.measure(point, batch)
        found.update({k: np.array([a for a, _, _ in v], float) for k, v in given.items()})
        return point

    jax.eval_shape(look, problem.start, {name: column[:1] for name, column in rows.items()})
    return found
