"""Small problems that each have one difficulty, and three whose limits cannot be kept."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import fedssca
from problems.case import ROWS, Case, Units, case, dataset, dense, divide


def rosenbrock(seed: int, dimension: int, radius: float = 1.0) -> Case:
    """Rosenbrock's function of noisy points, such that w lies in a disk that is sampled too."""
    rng = np.random.default_rng(1)
    columns = {
        "x": rng.normal(0, 0.1, (2000, dimension)).astype(np.float32),
        "y": np.zeros(2000, np.int32),
    }

    def terms(w: Any, batch: Any) -> Any:
        z = batch["x"]
        v = w[None, :] + 0 * z
        valley = 100 * jnp.square(v[:, 1:] - jnp.square(v[:, :-1]) + 0.1 * z[:, 1:])
        slope = jnp.square(1 - v[:, :-1] + z[:, :-1])
        return jnp.stack([jnp.sum(valley + slope, axis=1), jnp.square(v + 3 * z).sum(1)])

    start = np.where(np.arange(dimension) % 2, 0.5, -0.5)
    start = start + 0.1 * np.random.default_rng(seed).normal(size=dimension)
    problem = fedssca.custom_problem(
        terms, start.astype(np.float32), limits=[radius**2 + 0.09 * dimension]
    )
    return Case(problem, divide(columns, 5), 40, 1000, units=Units(rate=3e-3))


@case("generic")
def rosenbrock_2(seed: int) -> Case:
    return rosenbrock(seed, 2)


@case("generic")
def rosenbrock_20(seed: int) -> Case:
    return rosenbrock(seed, 20)


@case("generic")
def rosenbrock_100(seed: int) -> Case:
    return rosenbrock(seed, 100)


def halfspaces(
    normal: np.ndarray,
    limits: Any,
    *,
    start: float = 0.0,
    scale: float = 1.0,
    noise: float = 1.0,
    **more: Any,
) -> Case:
    """min |w - c|^2 such that a_m'w <= U_m, each measured with noise of mean 0."""
    count, dimension = normal.shape
    rng = np.random.default_rng(6)
    target = (1.5 * rng.normal(size=dimension)).astype(np.float32)
    z = rng.normal(0, noise, (1000, count)).astype(np.float32)
    columns = {"x": z - z.mean(0), "y": np.zeros(1000, np.int32)}
    rows = normal.astype(np.float32)

    def terms(w: Any, batch: Any) -> Any:
        z = batch["x"]
        distance = jnp.sum(jnp.square(w / scale - target)) + 0 * z[:, :1]
        return jnp.concatenate([distance, (w / scale) @ rows.T + z], axis=1).T

    first = jnp.full(dimension, start * scale, jnp.float32)
    problem = fedssca.custom_problem(terms, first, limits=limits)
    units = Units(rate=scale**2, length=scale)
    return Case(problem, divide(columns, 5), 20, 1000, units=units, **more)


def normals(count: int, dimension: int = 20) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(count, dimension))


@case("generic")
def halfspaces_3(seed: int) -> Case:
    return halfspaces(normals(3), [-8.0, -10.0, 1.0])


@case("units", same_as="halfspaces_3")
def halfspaces_w_1000(seed: int) -> Case:
    return halfspaces(normals(3), [-8.0, -10.0, 1.0], scale=1000.0)


@case("generic")
def halfspaces_50(seed: int) -> Case:
    return halfspaces(normals(50), [2.0] * 50)


@case("generic")
def far_outside(seed: int) -> Case:
    """The start breaks several limits by far."""
    return halfspaces(normals(5), [-8.0, -10.0, 1.0, -5.0, -11.0], start=50.0)


@case("generic")
def nearly_dependent(seed: int) -> Case:
    """Three limits whose gradients differ by 1 %; the multipliers are hardly determined."""
    rng = np.random.default_rng(7)
    base = normals(1)
    rows = base + 0.01 * rng.normal(size=(3, base.shape[1]))
    return halfspaces(rows, [-8.0] * 3, prices=False)


@case("generic")
def limit_zero(seed: int) -> Case:
    """A limit of 0: the loss of one class must not exceed that of the other."""
    train = dataset("adult", ROWS).train
    share = float(np.mean(train["y"] == 1))
    params, apply = dense((train["x"].shape[1], 2), seed)

    def gap(scores: Any, batch: Any) -> Any:
        sign = jnp.where(batch["y"] == 1, 1 / share, -1 / (1 - share))
        return fedssca.cross_entropy(scores, batch) * sign

    problem = fedssca.from_scores(apply, params, fedssca.custom("gap", gap, 0.0), l2=1e-3)
    return Case(problem, fedssca.by_sample(train, 5, "iid", seed=seed), 100, 600)


@case("infeasible")
def contradiction(seed: int) -> Case:
    """The losses of both classes at most .2: either can be kept, not both."""
    train = dataset("adult", ROWS).train
    share = float(np.mean(train["y"] == 1))
    params, apply = dense((train["x"].shape[1], 2), seed)

    def own(label: int, part: float) -> Any:
        return lambda s, b: fedssca.cross_entropy(s, b) * jnp.where(b["y"] == label, 1 / part, 0.0)

    limits = [
        *fedssca.custom("zero", own(0, 1 - share), 0.2),
        *fedssca.custom("one", own(1, share), 0.2),
    ]
    problem = fedssca.from_scores(apply, params, limits, l2=1e-3)
    clients = fedssca.by_sample(train, 5, "iid", seed=seed)
    return Case(problem, clients, 100, 500)


@case("infeasible")
def opposite_halfspaces(seed: int) -> Case:
    """a'w <= -1 and -a'w <= -1."""
    base = normals(1)
    return halfspaces(np.concatenate([base, -base]), [-1.0, -1.0])


@case("infeasible")
def credit_loss(seed: int) -> Case:
    """A loss of .05, where the smallest is above .4."""
    train = dataset("credit", ROWS).train
    model = fedssca.linear(train["x"].shape[1], 2)
    problem = fedssca.classifier(model, fedssca.loss_at_most(0.05), objective="norm", seed=seed)
    clients = fedssca.by_sample(train, 5, "iid", seed=seed)
    return Case(problem, clients, 100, 500)
