"""Bytes that methods send until the test accuracy of a network reaches a target.

The network 784-128-10 on MNIST, ten clients, B = 10, E = 10. The step sizes are those that
`fedssca reproduce tuned-sample` found for 95 % with 16 trials for each method. Every run is
evaluated after every round. A target counts as reached if two evaluations in a row reach it; the
bytes between the two evaluations around it are interpolated.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedssca.data import Rows, status
from fedssca.errors import UserError
from fedssca.evaluate.evaluator import Evaluator, evaluator_over
from fedssca.evaluate.traffic import Sent
from fedssca.rounds.fused import Fused
from fedssca.run.build import Job, build, load_dataset
from fedssca.run.config import parse
from fedssca.run.privacy import traffic_of

__all__ = ["measure_bytes"]

TASK = """
[data]
name = "mnist"
clients = 10
[model]
hidden = 128
[problem]
l2 = 1e-5
[algorithm]
batch = 10
local_steps = 10
rounds = 600
"""
MOMENTUM = (
    "algorithm.name=momentum",
    "algorithm.rate={a=0.377, alpha=0.123}",
    "algorithm.momentum=0.82",
)
SSCA = (
    "algorithm.rho={a=0.18, warm=false}",
    "algorithm.gamma={a=0.01, alpha=0.123}",
    "algorithm.tau=0.00377",
)
BASE = "momentum SGD, 32 bits"
RUNS = {
    BASE: MOMENTUM,
    "ssca, 32 bits": SSCA,
    "ssca, 16 bits": (*SSCA, "algorithm.bits=16"),
    "ssca, 8 bits": (*SSCA, "algorithm.bits=8"),
    "momentum SGD, 8 bits": (*MOMENTUM, "algorithm.bits=8"),
}
HIDDEN = "privacy.secure_sum=true"
TARGET, MOST, HOLD, SEEDS = 0.95, 80, 2, 3


class Reached(NamedTuple):
    """When one run reached the target."""

    rounds: float
    megabytes: float
    hidden: float
    """Megabytes if the same messages are added up in a secure sum."""


def measure_bytes(quick: bool, tick: Callable[[str], None]) -> dict[str, Any]:
    """Return `bytes`: method -> bytes to the target / those of momentum SGD in 32 bits.

    `bytes_details` has the means and the standard deviations over the seeds.
    """
    if not any(s.name == "mnist" and s.state == "present" for s in status()):
        raise UserError("bench --only bytes needs MNIST: fedssca data get mnist")
    seeds, target = range(1, 2 if quick else 1 + SEEDS), 0.8 if quick else TARGET
    found: dict[str, list[Reached]] = {}
    data = load_dataset(parse(TASK))
    assert data.test is not None
    measure: Evaluator | None = None
    for name, settings in RUNS.items():
        engine: Fused | None = None
        for seed in seeds:
            tick(f"{name}, seed {seed} of {len(seeds)}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Theorems ask for step sizes that vanish faster.
                job = build(parse(TASK, [*settings, f"run.seed={seed}"]), data)
            if engine is None:  # all seeds share its program, and the draws of its rounding
                engine = Fused(job.problem, job.clients, job.algorithm, seed)
            if measure is None:
                measure = evaluator_over(job.problem, Rows.of([data.test]), None)
            own = engine.twin(job.clients, seed)
            found.setdefault(name, []).append(_reached(job, own, measure, target))
    details = {name: _summary(runs) for name, runs in found.items()}
    base = details[BASE]["megabytes"]
    return {
        "bytes": {name: row["megabytes"] / base for name, row in details.items()},
        "bytes_target": target,
        "bytes_details": details,
    }


def _summary(runs: list[Reached]) -> dict[str, Any]:
    rounds, megabytes, hidden = (np.array(values) for values in zip(*runs, strict=True))
    return {
        "rounds": float(rounds.mean()),
        "rounds_sd": float(rounds.std(ddof=1)) if len(runs) > 1 else None,
        "megabytes": float(megabytes.mean()),
        "secure_sum_megabytes": float(hidden.mean()),
        "runs": len(runs),
    }


def _reached(job: Job, engine: Fused, measure: Evaluator, target: float) -> Reached:
    """Train until the target is reached."""
    clear, hidden = (
        traffic_of(parse(TASK, more))(job.problem, job.clients, job.algorithm)
        for more in ([], [HIDDEN])
    )
    state, curve = job.algorithm.init(job.problem.start), [0.0]
    for done in range(1, MOST + 1):
        state = engine.advance(state, done)
        curve.append(measure.row(state.w)["train_accuracy"])
        if min(curve[-HOLD:]) >= target:
            first = len(curve) - HOLD
            rounds = first - (curve[first] - target) / (curve[first] - curve[first - 1])
            return Reached(rounds, *(_megabytes(sent, rounds) for sent in (clear, hidden)))
    raise UserError(f"bench --only bytes: no accuracy of {target:.0%} in {MOST} rounds")


def _megabytes(sent: Sent, rounds: float) -> float:
    """The bytes of so many rounds, interpolated between whole ones."""
    below = math.floor(rounds)
    low, high = (sum(sent(n)) for n in (below, below + 1))
    return (low + (rounds - below) * (high - low)) / 1e6
