"""The time of a round with clipped samples and noise against the same round without.

The network 784-128-10 and a small convolutional one, ten clients with 6000 images each, B = 100.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedssca.methods.steered import steered_ssca
from fedssca.privacy.noise.messages import simulated, with_noise
from fedssca.problem.forms import AnyModel
from fedssca.problem.models import classifier, mlp
from fedssca.studies.bench.deep import BATCH, CLIENTS, DEEP, ROWS, STEPS
from fedssca.studies.bench.task import CLASSES, FEATURES, SCALE, Images, rounds_of, rows_for
from fedssca.studies.bench.timing import Workload, interleave, summary

__all__ = ["measure_noise"]


def measure_noise(
    data: Images, turns: int, seconds: float, tick: Callable[[str], None]
) -> dict[str, Any]:
    """Return `noise`: network -> seconds of a clipped and noised round / of a plain one."""
    models: dict[str, AnyModel] = {"mlp": mlp(FEATURES, 128, CLASSES, scale=SCALE)}
    models["cnn"] = DEEP["cnn"]()
    workloads: dict[str, Workload] = {}
    for name, model in models.items():
        workloads |= pair(data, name, model)
    timings = interleave(workloads, turns, seconds, tick)
    return {
        "noise": {
            name: timings[f"{name}, noise"].best / timings[f"{name}, plain"].best for name in models
        },
        "noise_seconds": summary(timings),
    }


def pair(data: Images, name: str, model: AnyModel) -> dict[str, Workload]:
    """Return the rounds with and without noise as workloads."""
    problem, clients = classifier(model, l2=1e-5), rows_for(data, CLIENTS, ROWS)
    plain = steered_ssca(problem, batch=BATCH, rounds=10**6, opening=[], **STEPS)
    noised, noise = with_noise(
        plain, problem, clients, clip=1.0, noise_multiplier=1.0, rounds=100, evaluate_every=0
    )

    return {
        f"{name}, plain": rounds_of(problem, clients, plain),
        f"{name}, noise": rounds_of(problem, clients, noised, simulated(noise, 0)),
    }
