"""Convolutional networks on the digits, in JAX and in PyTorch, with and without a limit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedssca
from fedssca.run.tune.space import NORM_FACTOR
from problems.case import Case, Units, case, dataset

CHANCE = float(np.log(10))
"""The loss of a constant prediction."""


def by_clients(seed: int, partition: str = "iid") -> Any:
    return fedssca.by_sample(dataset("digits").train, 5, partition, seed=seed)


def jax_network(seed: int, limits: Any, objective: str) -> Any:
    rng = np.random.default_rng(seed)

    def he(*shape: int, fan: int) -> np.ndarray:
        return (rng.normal(size=shape) * np.sqrt(2 / fan)).astype(np.float32)

    params = {
        "a": (he(3, 3, 1, 8, fan=9), np.zeros(8, np.float32)),
        "b": (he(3, 3, 8, 16, fan=72), np.zeros(16, np.float32)),
        "c": (he(64, 10, fan=64), np.zeros(10, np.float32)),
    }

    def apply(p: Any, x: Any) -> Any:
        h = (x.astype(p["a"][0].dtype) / 16).reshape(-1, 8, 8, 1)
        for w, b in (p["a"], p["b"]):
            h = jax.lax.conv_general_dilated(
                h, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            h = jax.nn.relu(h + b)
        w, b = p["c"]
        return h.reshape(h.shape[0], -1) @ w + b

    return fedssca.from_scores(apply, params, limits, objective)


def torch_network(seed: int, limits: Any, objective: str) -> Any:
    """The same network with PyTorch's own first parameters."""
    import torch

    torch.manual_seed(seed)
    module = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)),
        torch.nn.Conv2d(1, 8, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    )
    return fedssca.from_module(module, limits, objective, scale=1 / 16)


def norm(problem: Any, clients: Any) -> Case:
    units = Units(price=NORM_FACTOR)
    return Case(problem, clients, 20, 600, search="augmented", exact=False, units=units)


def free(problem: Any, clients: Any) -> Case:
    """The mean loss without a limit: its infimum is 0."""
    return Case(problem, clients, 20, 300, search="zero", unit=CHANCE)


@case("networks")
def cnn_free(seed: int) -> Case:
    return free(jax_network(seed, (), "loss"), by_clients(seed))


@case("networks", same_as="cnn_free")
def torch_free(seed: int) -> Case:
    return free(torch_network(seed, (), "loss"), by_clients(seed))


@case("networks")
def cnn_norm(seed: int) -> Case:
    return norm(jax_network(seed, fedssca.loss_at_most(0.3), "norm"), by_clients(seed))


@case("networks", same_as="cnn_norm")
def cnn_norm_skew(seed: int) -> Case:
    limits = fedssca.loss_at_most(0.3)
    return norm(jax_network(seed, limits, "norm"), by_clients(seed, "dirichlet"))


@case("networks", same_as="cnn_norm")
def torch_norm(seed: int) -> Case:
    return norm(torch_network(seed, fedssca.loss_at_most(0.3), "norm"), by_clients(seed))


@case("networks")
def cnn_two_limits(seed: int) -> Case:
    """The mean loss at most .3, and that of the digit 8 at most .15."""
    y = dataset("digits").train["y"]
    share = float(np.mean(y == 8))

    def eight(scores: Any, batch: Any) -> Any:
        return fedssca.cross_entropy(scores, batch) * jnp.where(batch["y"] == 8, 1 / share, 0.0)

    limits = [*fedssca.loss_at_most(0.3), *fedssca.custom("eight", eight, 0.15)]
    return norm(jax_network(seed, limits, "norm"), by_clients(seed))
