"""The memory that a large model takes beside its data: python benchmarks/memory.py

Prints a Markdown table. Each line is a process of its own, which trains a network with one hidden
layer and ten million parameters on random images, under one limit, and counts how many copies of
its parameters it held at most: at rest, in the probes before round 1, in rounds, in one evaluation,
in one gradient over all rows, and in the last steps on all rows with the certificate. Linux only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, CLASSES, BATCH = 784, 10, 10
PARTS = ("probes", "rounds", "evaluation", "gradient", "last steps")


def memory(name: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most since the mark was cleared."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) * 1024


def measured(part: str, parameters: int, rows: int, rounds: int) -> str:
    """A line of the table."""
    import fedssca
    from fedssca.evaluate.certificate import BestPoints
    from fedssca.evaluate.evaluator import evaluator_over
    from fedssca.rounds.fused import Fused
    from fedssca.run.conclude import MOST, conclude

    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, rows).astype(np.int32)
    x = rng.integers(0, 128, (CLASSES, FEATURES), np.uint8)[y]
    x += rng.integers(0, 128, x.shape, np.uint8)
    clients = fedssca.by_sample({"x": x, "y": y}, 10)
    network = fedssca.mlp(FEATURES, parameters // (FEATURES + CLASSES), CLASSES, scale=1 / 255)
    problem = fedssca.classifier(network, fedssca.loss_at_most(0.13), objective="norm")
    evaluator = evaluator_over(problem, clients, None)
    start, copy = problem.start, problem.start.nbytes

    def train() -> Any:
        method = fedssca.auto(problem, clients, batch=BATCH, rounds=rounds)
        return method, Fused(problem, clients, method, 0)

    def most(work: Callable[[], Any]) -> float:
        """The copies that are held at most during the work, beyond what was there before it."""
        before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        work()
        return (memory("VmHWM") - before) / copy

    evaluator.row(start * 0)
    if part == "probes":
        found = most(train)
    elif part == "evaluation":
        found = most(lambda: evaluator.row(start))
    elif part == "gradient":
        found = most(lambda: evaluator.gradients(start))
    else:
        method, engine = train()
        begun = method.init(start)
        if part == "rounds":
            found = most(lambda: engine.advance(begun, rounds))
        else:
            state = engine.advance(begun, rounds)
            row = evaluator.row(state.w)
            row |= {"round": rounds, "slack": [0.0], "multipliers": [0.0]}
            found = most(lambda: conclude(problem, evaluator, BestPoints(), state, [row], MOST))
    return f"| {part} | {found:.1f} |"


def main() -> None:
    """Measure each part in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=PARTS, nargs="*", default=PARTS)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = given.parameters, given.rows, given.rounds
    if given.part:
        print(measured(given.part, *sizes))
        return
    print(
        f"| {given.parameters:,} parameters, {given.rows:,} rows | copies |\n|---|---|", flush=True
    )
    for part in given.only:
        again = [sys.executable, __file__, "--part", part]
        for name, size in zip(("parameters", "rows", "rounds"), sizes, strict=True):
            again += [f"--{name}", str(size)]
        subprocess.run(again, check=True)


if __name__ == "__main__":
    main()
