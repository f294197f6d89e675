"""Full MNIST, when its files are on this machine: the paper's settings.

Limits on MNIST are measured by `benchmarks/constraints.py mnist`, which takes minutes.

Bands come from independent runs of the same settings, one seed: sanity bands, not goldens.
"""

import os
from pathlib import Path

import pytest

from fedssca.data import cache_folder
from fedssca.run import execute as runner
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.result import Result

PLACES = [
    Path(os.environ.get("FEDSSCA_DATA", "/nowhere")) / "mnist",
    cache_folder() / "mnist",
    Path(__file__).parents[3] / "shared" / "data" / "mnist",
]
FOUND = next((p for p in PLACES if (p / "train-images-idx3-ubyte.gz").exists()), None)
pytestmark = [
    pytest.mark.skipif(
        FOUND is None, reason="MNIST is not on this machine: fedssca data get mnist fetches it"
    ),
    pytest.mark.filterwarnings("ignore:convergence is not guaranteed"),
]


def train(*settings: str) -> Result:
    config = parse("", ["data.name=mnist", f"data.dir={FOUND}", *settings])
    return runner.train(build(config))


@pytest.mark.parametrize(
    ("split", "rho", "gamma", "tau", "bands"),
    [
        (
            "sample",
            "{a=0.3, alpha=0.1}",
            "{a=0.3, alpha=0.1}",
            0.05,
            {100: (0.276, 0.926), 200: (0.198, 0.943)},
        ),
        (
            "feature",
            "{a=0.9, alpha=0.1}",
            "{a=0.5, alpha=0.1}",
            0.2,
            {100: (0.338, 0.907), 200: (0.242, 0.934)},
        ),
    ],
)
def test_the_papers_settings_reproduce(split, rho, gamma, tau, bands) -> None:
    result = train(
        f"data.split={split}",
        "algorithm.batch=100",
        "algorithm.rounds=201",
        f"algorithm.rho={rho}",
        f"algorithm.gamma={gamma}",
        f"algorithm.tau={tau}",
        "run.evaluate_every=100",
    )
    rows = {row["round"]: row for row in result.rows}
    for at, (cost, accuracy) in bands.items():
        row = rows[at]
        assert row["train_cost"] == pytest.approx(cost, rel=0.15)
        assert row["test_accuracy"] == pytest.approx(accuracy, abs=0.012)
