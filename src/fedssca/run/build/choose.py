"""The method of a run: the algorithm that its config names, with its step sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedssca.data import Columns, Rows
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.curvature import diagonal
from fedssca.methods.local_ssca import local_ssca, local_ssca_change
from fedssca.methods.multipliers import Dual, exact_penalty, steered
from fedssca.methods.participation import participation
from fedssca.methods.rivals import augmented_lagrangian, primal_dual, quadratic_penalty, switching
from fedssca.methods.schedule import Schedule, power
from fedssca.methods.sgd import sgd, sgd_change
from fedssca.methods.ssca import ssca
from fedssca.methods.steered import steered_ssca
from fedssca.methods.surrogate import Surrogate, first_order
from fedssca.privacy.noise.clip import ReadChange
from fedssca.problem.problem import Problem
from fedssca.run.schema import Config, StepSettings

__all__ = ["Method", "in_cohorts", "method_of", "one_gradient"]


class Method(NamedTuple):
    """An algorithm, and how its messages carry gradients."""

    algorithm: Algorithm
    change: ReadChange | None = None
    """Given where clients send changes of w instead of gradients."""


def one_gradient(config: Config) -> bool:
    """Clients send one gradient for all limits, not one for every term as in the paper."""
    chosen = config.algorithm
    return chosen.multipliers == "steered" and chosen.surrogate in ("first-order", "exact")


def in_cohorts(config: Config, clients: Rows | Columns, algorithm: Algorithm) -> Algorithm:
    """The algorithm with as many clients per round as the config says."""
    chosen = config.algorithm
    if not chosen.cohort:
        return algorithm
    return participation(
        algorithm,
        clients=clients.count,
        cohort=chosen.cohort,
        seed=config.run.seed,
        dropout=chosen.dropout,
    )


def method_of(config: Config, problem: Problem) -> Method:
    """The method that a config names, with step sizes as they are."""
    chosen = config.algorithm
    tau = 1.0 if chosen.tau is None else chosen.tau

    def surrogate() -> Surrogate:
        table = {
            "first-order": lambda: first_order(problem, tau),
            "exact": lambda: first_order(problem, tau, exact=True),
            "diagonal": lambda: diagonal(problem, tau),
        }
        return table[chosen.surrogate]()

    most = float(np.max(config.problem.penalty))

    def rule() -> Dual:
        table = {
            "steered": lambda: steered(problem, chosen.rounds, penalty=most),
            "exact": lambda: exact_penalty(problem, config.problem.penalty),
        }
        return table[chosen.multipliers]()

    def schedule(step: StepSettings | None, name: str, most: float = 1.0) -> Schedule:
        given = step or StepSettings(1.0)
        checked = power(given.a, given.alpha, name=f"algorithm.{name}", most=most)
        return checked._replace(
            warm=given.warm, rise=given.rise, cool=given.cool, horizon=chosen.rounds
        )

    def local(momentum: float) -> Method:
        steps: dict[str, Any] = {
            "rate": schedule(chosen.rate, "rate", float("inf")),
            "steps": chosen.local_steps,
            "momentum": momentum,
        }
        made = sgd(problem, batch=chosen.batch, **steps)
        return Method(made, sgd_change(problem, **steps))

    def shared() -> dict[str, Any]:
        rate = schedule(chosen.rate, "rate", float("inf"))
        return {"batch": chosen.batch, "rate": rate, "momentum": chosen.momentum}

    def ascent() -> dict[str, Any]:
        dual_rate = schedule(chosen.dual_rate, "dual_rate", float("inf"))
        return shared() | {"dual_rate": dual_rate, "initial": chosen.initial}

    def sscas() -> Method:
        steps: dict[str, Any] = {
            "batch": chosen.batch,
            "rho": schedule(chosen.rho, "rho"),
            "gamma": schedule(chosen.gamma, "gamma"),
        }
        family, dual = surrogate(), rule()
        first = chosen.opening or [1.0] * problem.constraints
        more: dict[str, Any] = {"rounds": chosen.rounds, "tau": tau, "opening": first}
        more["penalty"] = most
        if chosen.local_steps > 1:
            _check_local(config, problem)
            local: dict[str, Any] = {"steps": chosen.local_steps}
            local["exact"] = chosen.surrogate == "exact"
            made = local_ssca(problem, **steps, **more, **local)
            read = {"rho": steps["rho"], "gamma": steps["gamma"], "tau": tau}
            return Method(made, local_ssca_change(problem, **read, **local))
        if problem.constraints and one_gradient(config):
            return Method(steered_ssca(problem, **steps, **more))
        return Method(ssca(problem, **steps, surrogate=family, dual=dual))

    table: dict[str, Callable[[], Method]] = {
        "ssca": sscas,
        "sgd": lambda: local(0.0),
        "momentum": lambda: local(chosen.momentum),
        "penalty": lambda: Method(quadratic_penalty(problem, **shared(), penalty=most)),
        "primal-dual": lambda: Method(primal_dual(problem, **ascent())),
        "augmented": lambda: Method(augmented_lagrangian(problem, **ascent(), penalty=most)),
        "switching": lambda: Method(switching(problem, **shared(), tolerance=chosen.tolerance)),
    }
    return table[chosen.name]()


def _check_local(config: Config, problem: Problem) -> None:
    """Local steps need surrogates whose curvature the server knows, and one gradient for all."""
    chosen = config.algorithm
    if chosen.surrogate == "diagonal":
        raise UserError(
            f'algorithm.local_steps = {chosen.local_steps}: surrogate "diagonal" takes one step a '
            'round; use local_steps = 1, or surrogate = "first-order"'
        )
    if problem.constraints and chosen.multipliers != "steered":
        raise UserError(
            f"algorithm.local_steps = {chosen.local_steps}: with constraints local steps need "
            f'multipliers = "steered", not {chosen.multipliers!r}'
        )
