"""Rounds a second of clients that stream against clients with fixed rows: the network 784-128-10.

Run: python benchmarks/streaming.py [turns] [seconds]; 10 clients, B = 10 and 100, Algorithm 1 with
the paper's step sizes. The streams are generators of views of arrays in memory, in blocks of 600
rows or of one, so what is timed is the runtime and not a disk. They take turns; a ratio of times is
the median over the turns.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Iterator

import jax
import numpy as np

from fedssca.data import Rows, Streams
from fedssca.rounds.streaming import Streaming
from fedssca.studies.bench.task import Images, Shape, images, rounds, setup
from fedssca.studies.bench.timing import Workload, interleave

BLOCKS = (600, 1)


def replay(rows: dict[str, np.ndarray], block: int) -> Iterator[dict[str, np.ndarray]]:
    """A client's rows again and again, in blocks."""
    for start in itertools.cycle(range(0, len(rows["y"]), block)):
        yield {name: column[start : start + block] for name, column in rows.items()}


def streaming(data: Images, shape: Shape, block: int) -> Workload:
    problem, clients, algorithm = setup(data, shape)
    assert isinstance(clients, Rows)
    sources = [replay(clients.client(i), block) for i in range(clients.count)]
    check = {name: column[:1000] for name, column in clients.columns.items()}
    engine = Streaming(problem, Streams(sources, check=check), algorithm)
    start = algorithm.init(problem.start)
    return lambda n: jax.block_until_ready(engine.advance(start, n))


def main(turns: int, seconds: float) -> None:
    data = images()
    print(f"{data.name}, {turns} turns of {seconds:g} s")
    print(f"{'B':>4} {'rows':>14} {'rounds':>10} {'time':>6}")
    for batch in (10, 100):
        shape = Shape(batch=batch)
        ways = {"fixed": rounds(data, shape)}
        ways |= {f"blocks of {block}": streaming(data, shape, block) for block in BLOCKS}
        taken = interleave(ways, turns, seconds, lambda text: None)
        for name, timing in taken.items():
            pairs = zip(taken["fixed"].runs, timing.runs, strict=True)
            ratio = statistics.median(own / fixed for fixed, own in pairs)
            print(f"{batch:>4} {name:>14} {1 / timing.median:>8,.0f}/s {ratio:>6.3f}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        int(arguments[0]) if arguments else 9,
        float(arguments[1]) if len(arguments) > 1 else 1.0,
    )
