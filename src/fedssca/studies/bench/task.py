"""The measured task: the network 784-128-10 on images, ten clients with 6000 rows each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns, Rows, by_feature, load, status
from fedssca.data.arrays import aligned
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.participation import participation
from fedssca.methods.schedule import power
from fedssca.methods.ssca import ssca
from fedssca.methods.steered import steered_ssca
from fedssca.problem.constraints import Constraint, cross_entropy, custom, loss_at_most
from fedssca.problem.models import classifier, mlp
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.rounds.fused import Fused
from fedssca.rounds.perturb import Perturbation, unperturbed
from fedssca.studies.bench.timing import Workload

__all__ = ["FEATURES", "Images", "Shape", "images", "rounds", "rounds_of", "rows_for", "setup"]

FEATURES, CLASSES, SCALE = 784, 10, 1 / 255


class Images(NamedTuple):
    """Rows of 784 bytes, and their labels."""

    name: str
    x: np.ndarray
    y: np.ndarray


class Shape(NamedTuple):
    """The sizes of a measured round."""

    clients: int = 10
    rows: int = 6000
    batch: int = 10
    hidden: int = 128
    limits: int = 0
    """0 minimises the loss; otherwise |w|^2 is minimised under this many limits."""
    multipliers: str = "exact"
    split: str = "sample"
    cohort: int = 0
    """The number of clients per round; 0 means all."""


def images(rows: int = 60_000) -> Images:
    """Return MNIST if it is on this machine, otherwise random data of the same shape."""
    if any(s.name == "mnist" and s.state == "present" for s in status()):
        train = load("mnist").train
        return Images("mnist", train["x"], train["y"])  # `load` aligns them.
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, rows).astype(np.int32)
    centres = rng.integers(0, 128, (CLASSES, FEATURES), dtype=np.uint8)
    noise = rng.integers(0, 128, (rows, FEATURES), dtype=np.uint8)
    return Images("random", aligned(centres[y] + noise), aligned(y))


def rows_for(data: Images, clients: int, rows: int) -> Rows:
    """Return clients with this many rows each; rows are repeated if there are too few."""
    sizes, columns = (rows,) * clients, {"x": data.x, "y": data.y}
    total = clients * rows
    if total <= len(data.y):
        return Rows({name: column[:total] for name, column in columns.items()}, sizes)
    return Rows(columns, sizes, (np.arange(total) % len(data.y)).astype(np.int32))


def setup(data: Images, shape: Shape) -> tuple[Problem, Rows | Columns, Algorithm]:
    """Return the problem, the clients, and SSCA with the paper's step sizes."""
    clients: Rows | Columns = rows_for(data, shape.clients, shape.rows)
    if shape.split == "feature":
        everything = rows_for(data, 1, shape.clients * shape.rows).client(0)
        clients = by_feature(everything, shape.clients)
    problem = classifier(
        mlp(FEATURES, shape.hidden, CLASSES, scale=SCALE),
        _limits(shape.limits),
        objective="norm" if shape.limits else "loss",
        l2=0.0 if shape.limits else 1e-5,
        features=clients.blocks if isinstance(clients, Columns) else None,
    )
    steps: dict[str, Any] = {"batch": shape.batch, "tau": 0.1}
    steps |= {"rho": power(0.9, 0.3), "gamma": power(0.9, 0.6)}
    if shape.limits and shape.multipliers == "steered":
        first = [1.0] * shape.limits
        method = steered_ssca(problem, rounds=10**6, opening=first, **steps)
    else:
        method = ssca(problem, **steps)
    if shape.cohort:
        method = participation(method, clients=shape.clients, cohort=shape.cohort)
    return problem, clients, method


def rounds(data: Images, shape: Shape) -> Workload:
    """Return a workload that runs n rounds in one call, from the start."""
    return rounds_of(*setup(data, shape))


def rounds_of(
    problem: Problem,
    clients: Rows | Columns,
    algorithm: Algorithm,
    perturbation: Perturbation = unperturbed,
) -> Workload:
    """Return the same for any problem and algorithm."""
    engine = Fused(problem, clients, algorithm, 0, perturbation)
    return lambda n: jax.block_until_ready(engine.advance(algorithm.init(problem.start), n))


def _limits(count: int) -> Sequence[Constraint]:
    """Return one limit on the loss, or several on losses with different class weights."""
    if count < 2:
        return loss_at_most(0.13) if count else ()
    weights = np.random.default_rng(0).uniform(0.5, 1.5, (count, CLASSES)).astype(np.float32)

    def weighed(row: np.ndarray) -> Callable[[Array, Batch], Array]:
        def loss(scores: Array, batch: Batch) -> Array:
            return jnp.asarray(row, scores.dtype)[batch["y"]] * cross_entropy(scores, batch)

        return loss

    return [c for m, row in enumerate(weights) for c in custom(f"loss {m}", weighed(row), 0.13)]
