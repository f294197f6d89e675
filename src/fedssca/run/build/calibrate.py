"""Step sizes that were left open, found by probing the clients before round 1."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fedssca.data import Columns, Rows, Streams
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.calibrate import PROBES, StepSizes, calibrate, probe
from fedssca.methods.corrected import corrected_ssca
from fedssca.methods.participation import cohort_of, participation
from fedssca.privacy.noise.messages import MessageNoise, simulated
from fedssca.problem.problem import Problem
from fedssca.rounds.fused import Fused
from fedssca.run.build.choose import in_cohorts, multiplier_rule
from fedssca.run.build.runtime import Engine
from fedssca.run.privacy import noise_deviation, noise_of
from fedssca.run.schema import Config, StepSettings

__all__ = ["auto", "auto_for", "calibrated", "probing"]

Wrap = Callable[[Algorithm], tuple[Algorithm, MessageNoise | None]]
"""The probing rounds -> the same in cohorts and with noise, where the run itself has them."""


def auto(
    problem: Problem,
    clients: Rows | Columns | Streams,
    *,
    batch: int,
    rounds: int,
    seed: int = 0,
    cohort: int = 0,
    dropout: float = 0.0,
) -> Algorithm:
    """The algorithm that `fedssca run` uses when no step sizes are given.

    With `cohort` > 0 that many clients are asked per round, and each stays silent with probability
    `dropout`. Step sizes for `Streams` come from their held-out rows; no row of theirs is used up.
    """
    made = auto_for(
        problem, clients, batch=batch, rounds=rounds, seed=seed, cohort=cohort, dropout=dropout
    )
    return made(rounds)


def auto_for(
    problem: Problem,
    clients: Rows | Columns | Streams,
    *,
    batch: int,
    rounds: int,
    seed: int = 0,
    cohort: int = 0,
    dropout: float = 0.0,
) -> Callable[[int], Algorithm]:
    """The same for any number of rounds, calibrated once for `rounds` of them."""
    if not isinstance(rounds, int | np.integer) or rounds < 1:
        raise UserError(f"rounds = {rounds!r}: it must be a whole number, at least 1")

    def asked(algorithm: Algorithm) -> Algorithm:
        if not cohort:
            return algorithm
        return participation(
            algorithm, clients=clients.count, cohort=cohort, seed=seed, dropout=dropout
        )

    if isinstance(clients, Streams):
        held, size = (
            clients.check,
            min(batch * clients.count // clients.check.count, *clients.check.sizes),
        )
        steps = _found(problem, held, size, rounds, seed, Fused, lambda probe: (probe, None))
    else:
        steps = _found(
            problem, clients, batch, rounds, seed, Fused, lambda probe: (asked(probe), None)
        )

    def made(horizon: int) -> Algorithm:
        method = corrected_ssca(
            problem,
            batch=batch,
            rounds=horizon,
            rho=steps.rho,
            gamma=steps.gamma._replace(horizon=horizon),
            tau=steps.tau,
            balance=steps.balance,
        )
        return asked(method)

    return made


def calibrated(config: Config, problem: Problem, clients: Rows | Columns, engine: Engine) -> Config:
    """The config with the step sizes that it left open."""
    if config.algorithm.name != "ssca":
        return config
    rule = multiplier_rule(config, problem)
    chosen = dataclasses.replace(config.algorithm, multipliers=rule)
    config = dataclasses.replace(config, algorithm=chosen)
    wanted: list[Any] = [chosen.rho, chosen.gamma, chosen.tau]
    if problem.constraints and chosen.surrogate != "diagonal":
        first: dict[str, list[Any]] = {
            "corrected": [chosen.balance],
            "steered": [chosen.opening],
            "exact": [],
        }
        wanted += first[rule]
    if None not in wanted:
        return config
    if chosen.batch <= (min(clients.sizes) if isinstance(clients, Rows) else clients.total):
        given = {"rho": chosen.rho, "gamma": chosen.gamma}
        found = _found(
            problem,
            clients,
            chosen.batch,
            chosen.most_rounds,
            config.run.seed,
            engine,
            lambda algorithm: probing(config, problem, clients, algorithm),
            **{name: step.a for name, step in given.items() if step},
        )
        chosen = dataclasses.replace(
            chosen,
            rho=chosen.rho or StepSettings(found.rho.a, warm=True),
            gamma=chosen.gamma
            or StepSettings(found.gamma.a, rise=found.gamma.rise, cool=found.gamma.cool),
            tau=list(found.tau) if chosen.tau is None else chosen.tau,
            opening=chosen.opening or (list(found.opening) if rule == "steered" else None),
            balance=chosen.balance or (list(found.balance) if rule == "corrected" else None),
            probes=PROBES,
        )
    return dataclasses.replace(config, algorithm=chosen)


def probing(
    config: Config, problem: Problem, clients: Rows | Columns, algorithm: Algorithm
) -> tuple[Algorithm, MessageNoise | None]:
    """The probing rounds in cohorts and with noise, where the run itself has them.

    Warnings are left to the run, which gives the same ones.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked = in_cohorts(config, clients, algorithm)
        return noise_of(config, problem, clients, asked, None, PROBES)


def _found(
    problem: Problem,
    clients: Rows | Columns,
    batch: int,
    rounds: int,
    seed: int,
    engine: Engine,
    wrap: Wrap,
    **given: Any,
) -> StepSizes:
    """Probe the clients wherever their rounds happen, under the conditions of the run."""

    def runtime(algorithm: Algorithm) -> Any:
        asked, noise = wrap(algorithm)
        return engine(problem, clients, asked, seed, simulated(noise, seed))

    asked, noise = wrap(probe(problem, batch, noised=True))
    deviation = noise_deviation(noise, cohort_of(asked, problem), clients)
    found = calibrate(problem, batch, rounds, runtime, noise=deviation, **given)
    if np.isinf(found.tau).any():
        raise UserError(
            "all gradients at the start are zero, so no step sizes can be found: is every feature "
            "constant? fedssca data describe shows it"
        )
    return found
