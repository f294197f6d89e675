"""Adult: differences between the losses of the sexes, limited from both sides or from one."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import fedssca
from problems.case import ROWS, Case, case, dataset, dense


def gap_limits(sex: np.ndarray, limit: float) -> list[fedssca.Constraint]:
    """The mean losses of the sexes differ by at most `limit`, in both directions."""
    share = float(np.mean(sex == 1))

    def gap(scores: Any, batch: Any) -> Any:
        sign = jnp.where(batch["sex"] == 1, 1 / share, -1 / (1 - share))
        return fedssca.cross_entropy(scores, batch) * sign

    return [
        fedssca.Constraint("gap", {"gap": (1.0, gap)}, limit),
        fedssca.Constraint("gap_lower", {"gap": (-1.0, gap)}, limit),
    ]


def loss_gap(seed: int, limit: float, hidden: tuple[int, ...], two_sided: bool = True) -> Case:
    """Networks get more regularisation, or their optimum would be out of reach in 1000 rounds."""
    data = dataset("adult", ROWS)
    params, apply = dense((data.train["x"].shape[1], *hidden, 2), seed)
    limits = gap_limits(data.train["sex"], limit)[: 1 + two_sided]
    problem = fedssca.from_scores(apply, params, limits, l2=3e-3 if hidden else 1e-3)
    clients = fedssca.by_sample(data.train, 5, "iid", seed=seed)
    search = "augmented" if hidden else "slsqp"
    return Case(problem, clients, 100, 1000, search=search, exact=not hidden)


@case("loss gap")
def gap_005_linear(seed: int) -> Case:
    return loss_gap(seed, 0.005, ())


@case("loss gap")
def gap_05_linear(seed: int) -> Case:
    return loss_gap(seed, 0.05, ())


@case("loss gap")
def gap_005_32(seed: int) -> Case:
    return loss_gap(seed, 0.005, (32,))


@case("loss gap")
def gap_05_32(seed: int) -> Case:
    return loss_gap(seed, 0.05, (32,))


@case("loss gap")
def gap_005_64_32(seed: int) -> Case:
    return loss_gap(seed, 0.005, (64, 32))


@case("loss gap")
def gap_05_64_32(seed: int) -> Case:
    return loss_gap(seed, 0.05, (64, 32))


@case("generic")
def unbounded_below(seed: int) -> Case:
    """One side only: one sex's loss at least .05 below the other's, a gap without a lower bound."""
    return loss_gap(seed, -0.05, (), two_sided=False)


@case("generic")
def unbounded_below_32(seed: int) -> Case:
    return loss_gap(seed, -0.05, (32,), two_sided=False)
