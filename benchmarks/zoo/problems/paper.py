"""The paper's problem: the smallest network (in |w|^2) whose training loss keeps a limit U."""

from __future__ import annotations

import fedssca
from fedssca.run.tune.space import NORM_FACTOR
from problems.case import Case, Units, case, dataset


def norm(
    seed: int,
    name: str,
    hidden: int,
    limit: float,
    batch: int,
    rounds: int,
    split: str,
) -> Case:
    data = dataset(name)
    model = fedssca.mlp(data.train["x"].shape[1], hidden, 10, scale=data.scale)
    limits = fedssca.loss_at_most(limit)
    if split == "sample":
        clients, features = fedssca.by_sample(data.train, 10, "iid", seed=seed), None
    else:
        clients = fedssca.by_feature(data.train, 4)
        features = clients.blocks
    problem = fedssca.classifier(model, limits, objective="norm", features=features, seed=seed)
    units = Units(price=NORM_FACTOR)
    return Case(problem, clients, batch, rounds, search="augmented", exact=False, units=units)


@case("paper")
def digits_10(seed: int) -> Case:
    return norm(seed, "digits", 32, 0.10, 20, 600, "sample")


@case("paper")
def digits_13(seed: int) -> Case:
    return norm(seed, "digits", 32, 0.13, 20, 600, "sample")


@case("paper")
def digits_20(seed: int) -> Case:
    return norm(seed, "digits", 32, 0.20, 20, 600, "sample")


@case("paper")
def digits_30(seed: int) -> Case:
    return norm(seed, "digits", 32, 0.30, 20, 600, "sample")


@case("paper", same_as="digits_20")
def digits_feature(seed: int) -> Case:
    return norm(seed, "digits", 32, 0.20, 200, 600, "feature")


@case("paper", large=True)
def mnist_sample_100(seed: int) -> Case:
    return norm(seed, "mnist", 128, 0.13, 100, 1000, "sample")


@case("paper", large=True, same_as="mnist_sample_100")
def mnist_sample_10(seed: int) -> Case:
    return norm(seed, "mnist", 128, 0.13, 10, 1000, "sample")


@case("paper", large=True, same_as="mnist_sample_100")
def mnist_feature_1000(seed: int) -> Case:
    return norm(seed, "mnist", 128, 0.13, 1000, 1000, "feature")
