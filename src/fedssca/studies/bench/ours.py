"""This library's side of the comparison with peers, in a process like theirs.

It is called as: python -m fedssca.studies.bench.ours settings.json
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["main"]

BLOCKS, SEEDS = 10, 5


def main(path: str) -> None:
    """Run FedSGD with one step per client and round; print one JSON line as peers do."""
    import jax
    import numpy as np

    from fedssca.data import Rows
    from fedssca.methods.schedule import power
    from fedssca.methods.sgd import sgd
    from fedssca.problem.models import classifier
    from fedssca.rounds.fused import Fused
    from fedssca.run.versions import versions
    from fedssca.studies.bench.deep import network_of

    given: dict[str, Any] = json.loads(Path(path).read_text())
    data = np.load(given["data"])
    total = given["clients"] * given["rows"]
    clients = Rows(
        {name: data[name][:total] for name in ("x", "y")}, (given["rows"],) * given["clients"]
    )
    problem = classifier(network_of(given["network"], given["hidden"]))
    rate = power(given["rate"], most=float("inf"))
    algorithm = sgd(problem, batch=given["batch"], rate=rate)
    shown = {name: column[: given["loss_rows"]] for name, column in clients.columns.items()}
    start = algorithm.init(problem.start)

    engine = Fused(problem, clients, algorithm, given["seed"])
    jax.block_until_ready(engine.advance(start, 1))
    startup = time.time() - given["launched"]
    seconds: list[float] = []
    state, block = start, max(1, (given["rounds"] - given["warmup"]) // BLOCKS)
    while len(seconds) < BLOCKS or sum(seconds) * block < given["seconds"]:
        begun = time.perf_counter()
        state = jax.block_until_ready(engine.advance(state, int(state.round) + block))
        seconds.append((time.perf_counter() - begun) / block)

    def loss(first: int) -> float:
        """Return the loss at the end of a run whose rounds are numbered from `first` on."""
        begin = start._replace(round=jax.numpy.int32(first))
        end = engine.advance(begin, first + given["rounds"])
        return float(problem.terms(end.w, shown).mean())

    losses = [loss(s * given["rounds"]) for s in range(SEEDS)]
    print(
        json.dumps(
            {
                "seconds": seconds,
                "startup": startup,
                "loss": float(np.median(losses)),
                "losses": losses,
                "versions": versions(),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
