"""Train on a folder of NPY files with less memory than the data: python benchmarks/large.py

Writes random images of `--gigabytes` to a temporary folder and trains on them in a process whose
own memory (RLIMIT_DATA: all but mapped files) is limited to a half of that. Prints seconds to
start, a round and an evaluation, and the most memory that the process had of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES, CLASSES, BLOCK = 784, 10, 100_000


def write(folder: Path, rows: int) -> None:
    """Noisy prototypes of ten classes."""
    rng = np.random.default_rng(0)
    centres = rng.integers(0, 128, (CLASSES, FEATURES), dtype=np.uint8)
    for end, count in (("", rows), ("_test", 10_000)):
        y = rng.integers(0, CLASSES, count)
        np.save(folder / f"y{end}.npy", y)
        x = np.lib.format.open_memmap(
            folder / f"x{end}.npy", "w+", np.dtype(np.uint8), (count, FEATURES)
        )
        for start in range(0, count, BLOCK):
            part = y[start : start + BLOCK]
            noise = rng.integers(0, 128, (len(part), FEATURES), dtype=np.uint8)
            x[start : start + BLOCK] = centres[part] + noise
        x.flush()


def train(folder: str, clients: int, limit: int) -> None:
    """In a process of its own, under the limit."""
    import fedssca
    from fedssca.run.build import build
    from fedssca.run.config import parse
    from fedssca.run.execute import train as run

    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    settings = [f'data.path="{folder}"', f"data.clients={clients}", "algorithm.cohort=100"]
    settings += ["algorithm.rounds=201", "algorithm.batch=10", "run.evaluate_every=200"]
    marks = [time.perf_counter()]
    job = build(parse("", settings))
    marks.append(time.perf_counter())
    result = run(job, on_row=lambda _: marks.append(time.perf_counter()))
    status = Path("/proc/self/status").read_text().splitlines()
    own = next(line.split()[1] for line in status if line.startswith("RssAnon"))
    found = {
        "fedssca": fedssca.__version__,
        "rows": job.clients.total,
        "clients": job.clients.count,
        "seconds to open, share out and calibrate": marks[1] - marks[0],
        "seconds to compile and evaluate once": marks[2] - marks[1],
        "seconds of 200 rounds and one evaluation": marks[3] - marks[2],
        "own memory, GB": int(own) / 1e6,
        "limit of own memory, GB": limit / 1e9,
        "train_accuracy": result.final["train_accuracy"],
    }
    print(json.dumps(found, indent=1))


def main() -> None:
    """Write, train, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.train, given.clients, int(given.gigabytes * 0.5e9))
        return
    with tempfile.TemporaryDirectory(prefix="fedssca-large-") as folder:
        write(Path(folder), int(given.gigabytes * 1e9) // FEATURES)
        again = [sys.executable, __file__, "--train", folder]
        again += ["--gigabytes", str(given.gigabytes), "--clients", str(given.clients)]
        sys.exit(subprocess.run(again, check=False).returncode)


if __name__ == "__main__":
    main()
