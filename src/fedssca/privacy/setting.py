"""Clipping and noise as a config asks for them."""

from __future__ import annotations

import math

import numpy as np

from fedssca.algorithm import Algorithm
from fedssca.config import Config, Privacy
from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.privacy.noise import private
from fedssca.problem import Problem

__all__ = ["check_amounts", "hidden", "loudness", "noisy", "survivors"]


def check_amounts(said: Privacy) -> None:
    """Numbers that make no sense."""
    for name in ("clip", "value_clip", "noise_multiplier", "epsilon"):
        if (amount := getattr(said, name)) < 0:
            raise UserError(f"privacy.{name} = {amount:g}: it must not be negative")


def noisy(said: Privacy) -> bool:
    """There is to be noise."""
    return bool(said.noise_multiplier or said.epsilon)


def loudness(algorithm: Algorithm, clients: Rows | Columns) -> float:
    """Standard deviation of the noise on one number of the summed gradient; 0: there is none."""
    if algorithm.noise is None:
        return 0.0
    sizes = np.asarray(clients.sizes if isinstance(clients, Rows) else (clients.total,))
    each = algorithm.noise.own(sizes / sizes.sum())
    cohort = algorithm.cohort
    more = cohort.clients / cohort.size if cohort else 1.0
    return float(algorithm.noise.vector * np.sqrt(more * np.sum(np.square(each))))


def survivors(config: Config, clients: int) -> int:
    """Clients in the smallest sum that can be opened; 0: messages are seen one by one.

    As in `graph.Rules.least`, to which every client holds the server. An encrypted sum may be
    opened with one client in it: there each adds the noise of a message that is seen.
    """
    said, asked = config.privacy, config.algorithm.cohort or clients
    least = max(2, math.ceil((said.threshold or 2 / 3) * asked - 1e-9))
    return least if said.secure_sum else 0


def hidden(
    config: Config,
    problem: Problem,
    clients: Rows | Columns,
    algorithm: Algorithm,
    probes: int,
) -> Algorithm:
    """`algorithm` with messages clipped and noised, if the config asks for it.

    `probes` messages come before the rounds; they are clipped, noised and counted alike.
    """
    said = config.privacy
    if not said.clip and not noisy(said):
        return algorithm
    return private(
        algorithm,
        problem,
        clients,
        clip=said.clip,
        value_clip=said.value_clip,
        unit=said.unit,
        noise_multiplier=said.noise_multiplier,
        epsilon=said.epsilon,
        delta=said.delta,
        rounds=config.algorithm.rounds,
        seed=config.run.seed,
        probes=probes,
        survivors=survivors(config, clients.count),
    )
