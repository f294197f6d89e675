"""Limits per client: Neyman-Pearson classification, and losses under label skew."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import fedssca
from fedssca.run.tune.space import NORM_FACTOR
from problems.case import ROWS, Case, Units, case, dataset, divide


def neyman_pearson(count: int, limit: float, batch: int) -> Case:
    """The loss of class 0, such that the loss of class 1 at every client is at most `limit`."""
    train = dataset("adult", 2500).train
    wide = train["x"].std(0) > 0.1
    clients = divide({"x": train["x"][:, wide], "y": train["y"]}, count)
    y, owners = clients.columns["y"], clients.owners()
    shares = [float(np.mean((owners == i) & (y == 1))) for i in range(count)]
    zero = float(np.mean(y == 0))

    def terms(params: Any, batch: Any) -> Any:
        w, b = params
        z = batch["x"] @ w + b
        loss = jnp.logaddexp(0.0, z) - batch["y"] * z
        own = [
            jnp.where((batch["client"] == i) & (batch["y"] == 1), 1 / share, 0.0) * loss
            for i, share in enumerate(shares)
        ]
        return jnp.stack([jnp.where(batch["y"] == 0, 1 / zero, 0.0) * loss, *own])

    start = (jnp.zeros(int(wide.sum())), jnp.zeros(()))
    problem = fedssca.custom_problem(terms, start, limits=[limit] * count, known=[1e-3])
    return Case(problem, clients, batch, 1000)


@case("clients")
def neyman_pearson_1(seed: int) -> Case:
    return neyman_pearson(1, 0.3, 250)


@case("clients")
def neyman_pearson_5(seed: int) -> Case:
    return neyman_pearson(5, 0.3, 100)


@case("clients")
def neyman_pearson_5_full(seed: int) -> Case:
    """Full batches: no noise."""
    return neyman_pearson(5, 0.2, 500)


@case("clients")
def neyman_pearson_20(seed: int) -> Case:
    return neyman_pearson(20, 0.3, 50)


@case("clients")
def skew_adult(seed: int) -> Case:
    """Logistic regression, five clients with very different shares of the classes."""
    train = dataset("adult", ROWS).train
    clients = fedssca.by_sample(train, 5, "dirichlet", seed=0, concentration=0.5, minimum=200)
    model = fedssca.linear(train["x"].shape[1], 2)
    limits = fedssca.client_loss_at_most(0.45, clients.sizes)
    problem = fedssca.classifier(model, limits, l2=1e-3, seed=seed)
    return Case(problem, clients, 100, 600)


@case("clients")
def skew_digits(seed: int) -> Case:
    """The smallest network such that the loss of every client is at most .3."""
    data = dataset("digits")
    clients = fedssca.by_sample(data.train, 5, "dirichlet", seed=0, concentration=0.5, minimum=40)
    model = fedssca.mlp(64, 32, 10, scale=data.scale)
    limits = fedssca.client_loss_at_most(0.3, clients.sizes)
    problem = fedssca.classifier(model, limits, objective="norm", seed=seed)
    units = Units(price=NORM_FACTOR)
    return Case(problem, clients, 20, 600, search="augmented", exact=False, units=units)
