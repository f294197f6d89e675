"""The methods that are compared, each as a function (case, seed) -> Algorithm."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from problems import Case

import fedssca
from fedssca.methods.steered import steered_ssca

Maker = Callable[[Case, int], Any]


def default(case: Case, seed: int) -> Any:
    """What `fedssca run` uses when nothing is set."""
    return fedssca.auto(case.problem, case.clients, batch=case.batch, rounds=case.rounds, seed=seed)


def calibrated(case: Case, seed: int) -> Any:
    """Step sizes found by probing the clients."""
    return fedssca.calibrate(
        case.problem,
        case.batch,
        case.rounds,
        lambda algorithm: fedssca.Fused(case.problem, case.clients, algorithm, seed),
    )


def steered(case: Case, seed: int) -> Any:
    """Multipliers steered by measured values, with calibrated step sizes."""
    found = calibrated(case, seed)
    return steered_ssca(
        case.problem,
        batch=case.batch,
        rounds=case.rounds,
        rho=found.rho,
        gamma=found.gamma,
        tau=found.tau,
        opening=found.opening,
    )


def exact_printed(case: Case, seed: int) -> Any:
    """The paper's rule with step sizes as it prints them."""
    rho, gamma = fedssca.power(0.9, 0.3), fedssca.power(0.5, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fedssca.ssca(case.problem, batch=case.batch, rho=rho, gamma=gamma, tau=0.2)


def exact_calibrated(case: Case, seed: int) -> Any:
    """The paper's rule with calibrated step sizes."""
    found = calibrated(case, seed)
    return fedssca.ssca(
        case.problem, batch=case.batch, rho=found.rho, gamma=found.gamma, tau=found.tau
    )


METHODS: dict[str, Maker] = {
    "default": default,
    "steered": steered,
    "exact-printed": exact_printed,
    "exact-calibrated": exact_calibrated,
}
