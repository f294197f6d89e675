"""Rounds of deeper networks against PyTorch on the same images: ten clients, B = 100.

PyTorch computes the gradient of the ten batches joined into one, which is the least that a round
needs, and for comparison client after client, as simulators do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fedssca.errors import UserError
from fedssca.methods.schedule import power
from fedssca.methods.steered import steered_ssca
from fedssca.problem.forms import AnyModel
from fedssca.problem.models import classifier, cnn, mlp
from fedssca.studies.bench.task import CLASSES, FEATURES, SCALE, Images, rounds_of, rows_for
from fedssca.studies.bench.timing import Workload, interleave, summary

__all__ = [
    *("BATCH", "CLIENTS", "DEEP", "ROWS", "STEPS"),
    *("convolutional", "dense", "measure_deep", "network_of"),
]

CLIENTS, ROWS, BATCH = 10, 6000, 100
STEPS: dict[str, Any] = {"rho": power(0.9, 0.3), "gamma": power(0.9, 0.6), "tau": 0.1}
CHANNELS, TOP, LAYERS = (16, 32), 64, (256, 128, 64)
DEEP: dict[str, Callable[[], AnyModel]] = {
    "cnn": lambda: cnn((28, 28), CLASSES, CHANNELS, (TOP,), "relu", scale=SCALE),
    "mlp3": lambda: mlp(FEATURES, LAYERS, CLASSES, "relu", scale=SCALE),
}


def network_of(name: str, hidden: int) -> AnyModel:
    """Return the network "cnn", or the one of the other sections with so many hidden units."""
    return DEEP["cnn"]() if name == "cnn" else mlp(FEATURES, hidden, CLASSES, scale=SCALE)


def measure_deep(
    data: Images, turns: int, seconds: float, tick: Callable[[str], None]
) -> dict[str, Any]:
    """Return `deep`: network -> seconds of our round / of PyTorch's joined batch.

    `deep_loop` has PyTorch's loop over the clients in place of the joined batch.
    """
    workloads: dict[str, Workload] = {}
    for name, make in DEEP.items():
        workloads[f"{name}, ours"] = _ours(data, make())
        workloads[f"{name}, PyTorch joined"] = _pytorch(data, name, 1)
        workloads[f"{name}, PyTorch loop"] = _pytorch(data, name, CLIENTS)
    timings = interleave(workloads, turns, seconds, tick)

    def ratios(rival: str) -> dict[str, float]:
        return {n: timings[f"{n}, ours"].best / timings[f"{n}, {rival}"].best for n in DEEP}

    return {
        "deep": ratios("PyTorch joined"),
        "deep_loop": ratios("PyTorch loop"),
        "deep_seconds": summary(timings),
    }


def _ours(data: Images, model: AnyModel) -> Workload:
    problem, clients = classifier(model), rows_for(data, CLIENTS, ROWS)
    method = steered_ssca(problem, batch=BATCH, rounds=10**6, opening=[], **STEPS)
    return rounds_of(problem, clients, method)


def _pytorch(data: Images, name: str, parts: int) -> Workload:
    """Rounds of plain gradient steps on the same number of rows, in so many passes."""
    try:
        import torch
    except ImportError:
        raise UserError(
            "bench --only deep compares with PyTorch, which is not installed: pip install "
            "'torch>=2.6' --index-url https://download.pytorch.org/whl/cpu takes a build without "
            "CUDA"
        ) from None

    torch.manual_seed(0)
    network = (
        convolutional(torch.nn) if name == "cnn" else dense(torch.nn, (FEATURES, *LAYERS, CLASSES))
    )
    x, y = torch.from_numpy(np.array(data.x)), torch.from_numpy(np.array(data.y)).long()
    draw = torch.Generator().manual_seed(0)
    weights = list(network.parameters())
    loss: Any = torch.nn.functional.cross_entropy

    def work(n: int) -> None:
        for _ in range(n):
            for weight in weights:
                weight.grad = None
            for _ in range(parts):
                rows = torch.randint(len(y), (CLIENTS * BATCH // parts,), generator=draw)
                image = x[rows].float() * SCALE
                shaped = image.view(-1, 1, 28, 28) if name == "cnn" else image
                (loss(network(shaped), y[rows]) / parts).backward()
            with torch.no_grad():
                for weight in weights:
                    weight -= 0.01 * weight.grad

    return work


def dense(nn: Any, widths: Sequence[int]) -> Any:
    """Return PyTorch's network of dense layers of these widths."""
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def convolutional(nn: Any) -> Any:
    """Return PyTorch's network that is the model "cnn"."""
    first, second = CHANNELS
    return nn.Sequential(
        nn.Conv2d(1, first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), dense(nn, (second * 49, TOP, CLASSES)),
    )  # fmt: skip
