"""The two products of a round in bfloat16 and in float32, by XLA and by PyTorch.

    python benchmarks/half_precision.py

X W' and D' X of the network 784-128-10 with 1,000 and 60,000 rows; a sum of products is kept in
float32. All ways run in turns in one process. A ratio below 1 says that bfloat16 is faster.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch

from fedssca.studies.bench.timing import Workload, interleave

ROWS, INPUTS, HIDDEN = (1_000, 60_000), 784, 128


def by_xla(dtype: jnp.dtype, arrays: list[np.ndarray]) -> Workload:
    x, w, d = (jnp.asarray(array, dtype) for array in arrays)

    @jax.jit
    def products(x: jax.Array, w: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
        kept = {"preferred_element_type": jnp.float32}
        return jnp.dot(x, w.T, **kept), jnp.dot(d.T, x, **kept)

    return repeated(lambda: jax.block_until_ready(products(x, w, d)))


def by_torch(dtype: torch.dtype, arrays: list[np.ndarray]) -> Workload:
    x, w, d = (torch.from_numpy(array).to(dtype) for array in arrays)
    return repeated(lambda: (x @ w.T, d.T @ x))


def repeated(once: Callable[[], object]) -> Workload:
    def work(n: int) -> None:
        for _ in range(n):
            once()

    return work


def main() -> None:
    draw = np.random.default_rng(0).normal
    print(
        "| rows | library | float32, ms | bfloat16, ms | ratio |\n| --- | --- | --- | --- | --- |"
    )
    for rows in ROWS:
        shapes = (rows, INPUTS), (HIDDEN, INPUTS), (rows, HIDDEN)
        arrays = [draw(size=shape).astype(np.float32) for shape in shapes]
        ways = {
            "XLA": (by_xla(jnp.float32, arrays), by_xla(jnp.bfloat16, arrays)),
            "PyTorch": (by_torch(torch.float32, arrays), by_torch(torch.bfloat16, arrays)),
        }
        turns = {f"{name} {i}": work for name, pair in ways.items() for i, work in enumerate(pair)}
        found = interleave(turns, 9, 0.3, str)
        for name in ways:
            full, half = (found[f"{name} {i}"].best * 1e3 for i in (0, 1))
            print(f"| {rows:,} | {name} | {full:.1f} | {half:.1f} | {half / full:.2f} |")


if __name__ == "__main__":
    main()
