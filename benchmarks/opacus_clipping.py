"""A clipped and noised round against Opacus on the same networks and number of rows.

    pip install opacus; FEDSSCA_DATA=FOLDER python benchmarks/opacus_clipping.py

Ten clients with 100 images each in a round; Opacus gets the 1,000 images as one batch, with all of
its ways of clipping: ghost norms, fast clipping without them, and gradients of single samples. The
fastest one counts. Both sides run in turns in one process. A ratio below 1 says that we are faster.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

from fedssca.problem.models import mlp
from fedssca.studies.bench.deep import BATCH, CLIENTS, DEEP, convolutional, dense
from fedssca.studies.bench.noise import pair
from fedssca.studies.bench.task import CLASSES, FEATURES, SCALE, Images, images
from fedssca.studies.bench.timing import interleave

ROWS, CLIP, SIGMA = CLIENTS * BATCH, 1.0, 1.0
NAMES = {"mlp": "network 784-128-10", "cnn": "convolutional network"}
Step = Callable[[torch.Tensor, torch.Tensor], None]


def network(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    made: torch.nn.Module = convolutional(torch.nn) if name == "cnn" else dense(
        torch.nn, (FEATURES, 128, CLASSES)
    )  # fmt: skip
    return made


def fast(name: str, ghost: bool) -> Step:
    model = GradSampleModuleFastGradientClipping(
        network(name), max_grad_norm=CLIP, use_ghost_clipping=ghost
    )
    optimiser = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=0.01),
        noise_multiplier=SIGMA, max_grad_norm=CLIP, expected_batch_size=ROWS,
    )  # fmt: skip
    loss = DPLossFastGradientClipping(model, optimiser, torch.nn.CrossEntropyLoss(reduction="mean"))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimiser.zero_grad()
        loss(model(x), y).backward()
        optimiser.step()

    return step


def single(name: str) -> Step:
    model = GradSampleModule(network(name))
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01),
        noise_multiplier=SIGMA, max_grad_norm=CLIP, expected_batch_size=ROWS,
    )  # fmt: skip

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def rounds(data: Images, name: str, step: Step) -> Callable[[int], None]:
    x, y = torch.from_numpy(np.array(data.x)), torch.from_numpy(np.array(data.y)).long()
    draw = torch.Generator().manual_seed(0)

    def work(n: int) -> None:
        for _ in range(n):
            rows = torch.randint(len(y), (ROWS,), generator=draw)
            image = x[rows].float() * SCALE
            step(image.view(-1, 1, 28, 28) if name == "cnn" else image, y[rows])

    return work


def main() -> None:
    warnings.simplefilter("ignore")
    data = images()
    models: dict[str, Any] = {"mlp": mlp(FEATURES, 128, CLASSES, scale=SCALE), "cnn": DEEP["cnn"]()}
    print(
        "| network | fedssca, ms | ghost norms of Opacus, ms | its fast clipping, ms "
        "| its single gradients, ms | ours / its fastest |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for name, model in models.items():
        work: dict[str, Any] = {"ours": pair(data, name, model)[f"{name}, noise"]}
        work["ghost"] = rounds(data, name, fast(name, True))
        work["fast"] = rounds(data, name, fast(name, False))
        work["single"] = rounds(data, name, single(name))
        found = {way: timing.best for way, timing in interleave(work, 7, 0.3, str).items()}
        ours = found.pop("ours")
        cells = " | ".join(f"{seconds * 1e3:.1f}" for seconds in found.values())
        print(f"| {NAMES[name]} | {ours * 1e3:.1f} | {cells} | {ours / min(found.values()):.2f} |")


if __name__ == "__main__":
    main()
