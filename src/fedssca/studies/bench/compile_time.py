"""The time of the first round in a new process: python -m fedssca.studies.bench.compile_time."""

from __future__ import annotations

import json
import time

import numpy as np

from fedssca.studies.bench.task import CLASSES, FEATURES, Images, Shape, rounds


def main() -> None:
    """Print one JSON line: seconds to compile and run one round."""
    y = np.arange(10_000, dtype=np.int32) % CLASSES
    workload = rounds(Images("zeros", np.zeros((len(y), FEATURES), np.uint8), y), Shape(rows=1000))
    begun = time.perf_counter()
    workload(1)
    print(json.dumps({"first_round": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()
