"""The time of a round against the two matrix products that every round needs.

    X W'  with X (I B, 784) and W (128, 784): the first layer
    D' X  with D (I B, 128): its gradient

Both are timed in one compiled loop and in numpy with its BLAS; the faster one is the limit. In the
loop (W' -> D -> W) each product depends on the one before, so the compiler cannot remove any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.studies.bench.task import FEATURES, Images, Shape, rounds
from fedssca.studies.bench.timing import Timing, Workload, interleave, summary

__all__ = ["BATCHES", "measure_limit", "products", "ratios"]

BATCHES = (10, 100, 6000)


def measure_limit(
    data: Images, turns: int, seconds: float, tick: Callable[[str], None]
) -> dict[str, Any]:
    """Return `limit`: batch size -> seconds of a round / of its two products, best turns."""
    workloads: dict[str, Workload] = {}
    for batch in BATCHES:
        shape = Shape(batch=batch)
        workloads[f"round, B = {batch}"] = rounds(data, shape)
        compiled, blas = products(shape.clients * batch, shape.hidden)
        workloads[f"products in JAX, B = {batch}"] = compiled
        workloads[f"products in numpy, B = {batch}"] = blas
    timings = interleave(workloads, turns, seconds, tick)
    return {
        "limit": ratios(timings, BATCHES, lambda timing: timing.best),
        "limit_of_medians": ratios(timings, BATCHES, lambda timing: timing.median),
        "seconds": summary(timings),
    }


def ratios(
    timings: Mapping[str, Timing], batches: Sequence[int], pick: Callable[[Timing], float]
) -> dict[str, float]:
    """Return the time of a round over the faster products, for every batch size."""

    def floor(batch: int) -> float:
        return min(pick(timings[f"products in {kind}, B = {batch}"]) for kind in ("JAX", "numpy"))

    return {str(b): pick(timings[f"round, B = {b}"]) / floor(b) for b in batches}


def products(rows: int, hidden: int) -> tuple[Workload, Workload]:
    """Return both products as workloads: in a compiled JAX loop, and in numpy."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, FEATURES), np.float32)
    x /= np.sqrt(np.linalg.eigvalsh(x.T @ x if rows > FEATURES else x @ x.T)[-1])
    # Now |X|_2 = 1, so that repeated products neither overflow nor become denormal.
    w = rng.standard_normal((hidden, FEATURES), np.float32)
    on_device, first = jnp.asarray(x), jnp.asarray(w)

    @jax.jit
    def loop(x: jax.Array, w: jax.Array, n: int) -> jax.Array:
        return jax.lax.fori_loop(0, n, lambda _, w: (x @ w.T).T @ x, w)

    def blas(n: int) -> None:
        out, d = w.copy(), np.empty((rows, hidden), np.float32)
        for _ in range(n):
            np.dot(x, out.T, out=d)
            np.dot(d.T, x, out=out)

    return lambda n: jax.block_until_ready(loop(on_device, first, n)), blas
