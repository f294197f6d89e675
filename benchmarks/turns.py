"""The run whose rounds benchmarks of engines compare with bare calls, and a row of their table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

RUN = """
[data]
path = "{path}"
clients = 4
split = "{split}"
[model]
hidden = 128
[algorithm]
batch = {batch}
rho = {{a = 0.9, alpha = 0.1}}
gamma = {{a = 0.5, alpha = 0.1}}
tau = 0.2
rounds = 1000
"""
"""d = 101,632 (784-128-10)."""


def write_images(path: Path) -> None:
    """Random images for `RUN`."""
    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (4000, 784), dtype=np.uint8)
    np.savez(path, x=x, y=draw.integers(0, 10, 4000))


def table_row(title: str, found: dict[str, Any]) -> dict[str, str]:
    """A row of a table of rounds, from a result.json."""
    ours, bare = found["ours"], found["bare"]
    shown = {"our round": f"{ours:.3f} s", "the bare engine": f"{bare:.3f} s"}
    return {"": title, **shown, "ratio": f"{ours / bare:.2f}"}
