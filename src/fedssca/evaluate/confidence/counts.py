"""Counts of calibration rows to which noise is added: two numbers of each mean, and their noise.

For every mean of a quantity the sums of x and of 1 - x over its rows are released. A row that is in
several means of a quantity counts for the first of them only, and what is subtracted comes last: of
a group against all rows these are the group and the rest. So a row adds a vector of length 1 at
most to the numbers of a quantity, and of sqrt(Q) to those of Q quantities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.evaluate.confidence.evidence import Evidence, order_of
from fedssca.evaluate.confidence.means import Floats
from fedssca.evaluate.passes import CHUNK, over_chunks
from fedssca.problem.limits import StatedLimit
from fedssca.problem.problem import Array, Batch, Problem, Rate

__all__ = ["CountNoise", "count_sums", "counted_evidence", "counts_added", "row_shares"]

OF_CALIBRATION = 0xCA11
"""Tells the random numbers of calibration rows from others."""


class CountNoise(NamedTuple):
    """The standard deviations of the noise on counts of calibration rows."""

    pooled: float
    """Of the counts of all sites together."""
    alone: float
    """Of the counts of a site that tests its own claims."""
    seed: int = 0
    """Of simulated noise."""
    shares: Mapping[str, Floats] = MappingProxyType({})
    """The part of all rows that counts for each mean, as the labels of training rows tell."""

    def on_line(self, line: int, each_site: bool) -> float:
        """That of the counts of all rows (line 0), or of one site."""
        return self.alone if each_site or line else self.pooled

    def added(self, w: Array, sums: Mapping[str, Floats], line: int, each: bool) -> dict[str, Any]:
        """Sums with simulated noise, a function of the seed, of w and of the line."""
        bits = np.frombuffer(hashlib.sha256(np.asarray(w).tobytes()).digest()[:16], np.uint32)
        rng = np.random.default_rng([self.seed, OF_CALIBRATION, line, *map(int, bits)])
        deviation = self.on_line(line, each)
        return {name: own + deviation * rng.normal(size=own.shape) for name, own in sums.items()}


def counts_added(
    measures: Mapping[str, Sequence[Rate]],
    batch: Batch,
    clips: Mapping[str, float],
    clients: int = 0,
) -> dict[str, Array]:
    """(1 + clients, J, 2) for each quantity: sums of x and 1 - x, over all rows and each client."""
    owner = batch["client"][None]
    masks = jnp.concatenate([jnp.ones_like(owner, bool), owner == jnp.arange(clients)[:, None]])
    found = {}
    for name, clip in clips.items():
        means: list[Array] = []
        left: Array = jnp.ones_like(batch["weight"])
        for _, top, bottom in _ordered(measures[name]):
            x = jnp.clip(jnp.nan_to_num(top / clip, nan=1.0), 0, 1)
            inside = left * jnp.clip(bottom, 0, 1)
            left = left - inside
            weights = masks * batch["weight"] * inside
            means.append(weights.astype(x.dtype) @ jnp.stack([x, 1 - x], axis=1))
        found[name] = jnp.stack(means, axis=1)
    return found


def _ordered(means: Sequence[Rate]) -> list[Rate]:
    return [means[j] for j in order_of(np.array([a for a, _, _ in means], float))]


def count_sums(
    problem: Problem, clips: Mapping[str, float], clients: int
) -> Callable[[Array, Batch], dict[str, Array]]:
    """(w, rows) -> the sums of `counts_added` over all chunks of rows."""

    @jax.jit
    def sums(w: Array, rows: Batch) -> Any:
        return over_chunks(
            rows, lambda chunk: counts_added(problem.measure(w, chunk), chunk, clips, clients)
        )

    return sums


def counted_evidence(
    limits: Sequence[StatedLimit],
    signs: Mapping[str, Floats],
    clips: Mapping[str, float],
    sums: Mapping[str, Any],
    deviation: float,
) -> dict[str, Evidence]:
    """The evidence in noised sums, (J, 2) for every quantity.

    Values that are not known to be 0 or 1, by the kind of their limit, do not count as such.
    """
    found = {}
    for limit in limits:
        name = limit.quantity
        weights = signs[name][order_of(signs[name])]
        own = np.asarray(sums[name], float)
        if limit.whole:  # the group and the rest -> the group and all rows
            own = np.stack([own[0], own[0] + own[1]])
        nothing = np.zeros((len(weights), 2, 3))
        found[name] = Evidence(
            weights=weights,
            top=own[:, 0],
            rows=own.sum(axis=1),
            bets=nothing,
            sums=nothing,
            clip=clips[name],
            counted=limit.rate,
            noise=deviation,
        )
    return found


def row_shares(
    problem: Problem, clients: Rows | Columns, quantities: Sequence[str]
) -> dict[str, Floats]:
    """The part of the training rows that counts for each mean, as far as labels and groups tell.

    Features are taken to be 0, so that nothing is found out about them.
    """
    owners = clients.owners() if isinstance(clients, Rows) else np.zeros(clients.total, np.int32)
    beside = {name: values for name, values in clients.columns.items() if name != "x"}
    like = clients.columns["x"]

    def counted(batch: Batch) -> dict[str, Array]:
        found = problem.measure(problem.start, batch)
        return {
            name: jnp.stack(
                [jnp.clip(bottom, 0, 1) @ batch["weight"] for _, _, bottom in _ordered(found[name])]
            )
            for name in quantities
        }

    total = {name: np.zeros(1) for name in quantities}
    for begin in range(0, len(owners), CHUNK):
        own = owners[begin : begin + CHUNK]
        batch = {name: jnp.asarray(v[begin : begin + CHUNK]) for name, v in beside.items()}
        batch["x"] = jnp.zeros((len(own), *like.shape[1:]), like.dtype)
        batch |= {"client": jnp.asarray(own), "weight": jnp.asarray(own >= 0, jnp.float32)}
        for name, each in counted(batch).items():
            total[name] = total[name] + np.asarray(each, float)
    return {name: each / max(clients.total, 1) for name, each in total.items()}
