"""The method of a run: the algorithm that its config names, with its step sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedssca.data import Columns, Rows
from fedssca.errors import ConfigError, UserError
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.corrected import corrected_ssca
from fedssca.methods.curvature import diagonal
from fedssca.methods.local_ssca import local_ssca, local_ssca_change
from fedssca.methods.multipliers import Dual, exact_penalty, steered
from fedssca.methods.own import own_algorithm
from fedssca.methods.participation import participation
from fedssca.methods.rivals import augmented_lagrangian, primal_dual, quadratic_penalty, switching
from fedssca.methods.schedule import Schedule, power
from fedssca.methods.sgd import sgd, sgd_change
from fedssca.methods.ssca import ssca
from fedssca.methods.staleness import Delays, of_several_rounds, timed
from fedssca.methods.steered import steered_ssca
from fedssca.methods.surrogate import Surrogate, first_order
from fedssca.privacy.noise.clip import ReadChange
from fedssca.problem.problem import Problem
from fedssca.rounds.compressed import compressed
from fedssca.rounds.rounding import FULL
from fedssca.rounds.shapes import round_shapes
from fedssca.run.schema import Config, RuleName, StepSettings

__all__ = [
    "Method",
    "in_cohorts",
    "in_few_bits",
    "method_of",
    "multiplier_rule",
    "not_waiting",
    "schedule_of",
]


class Method(NamedTuple):
    """An algorithm, and how its messages carry gradients."""

    algorithm: Algorithm
    change: ReadChange | None = None
    """Given where clients send changes of w instead of gradients."""


def multiplier_rule(config: Config, problem: Problem) -> RuleName:
    """How the multipliers are found: as the config says, or as fits the rest of it."""
    chosen = config.algorithm
    if chosen.multipliers is not None:
        return chosen.multipliers
    if chosen.surrogate == "diagonal" or chosen.local_steps > 1:
        return "steered"
    given = None not in (chosen.rho, chosen.gamma, chosen.tau)
    return "exact" if given and not problem.constraints else "corrected"


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


def not_waiting(
    config: Config, problem: Problem, clients: Rows | Columns, algorithm: Algorithm
) -> Algorithm:
    """The algorithm for rounds that do not wait for slow clients, if the config asks for them.

    `algorithm.delays` simulates slow clients; in a deployment sites take the time that they take.
    """
    chosen = config.algorithm
    if not chosen.staleness:
        return algorithm
    made = of_several_rounds(algorithm)
    if chosen.delays is None or not isinstance(clients, Rows):
        return made
    if len(chosen.delays) != clients.count:
        raise ConfigError(
            "algorithm.delays",
            f"algorithm.delays has {len(chosen.delays)} entries for {clients.count} clients: give "
            "one for each",
        )
    delays = Delays.of(chosen.delays, chosen.enough, chosen.staleness)
    shares = (np.asarray(clients.sizes) / clients.total).tolist()
    return timed(made, problem, round_shapes(problem, clients, made)[1], shares, delays)


def in_few_bits(
    config: Config, problem: Problem, clients: Rows | Columns, algorithm: Algorithm
) -> Algorithm:
    """The algorithm with messages of as many bits as the config says; a UserError if it cannot."""
    bits, privacy = config.algorithm.bits, config.privacy
    if bits == FULL:
        return algorithm
    for given, why in (
        (isinstance(clients, Columns), "parties that hold columns send 32 bits; leave bits out"),
        (
            config.algorithm.staleness,
            "messages of several rounds have 32 bits; leave bits out, or staleness",
        ),
        (
            privacy.clip,
            "messages that are clipped or noised have 32 bits; leave bits out, or privacy.clip",
        ),
        (
            privacy.homomorphic,
            "encrypted numbers have a size of their own; leave bits out, or use privacy.secure_sum",
        ),
    ):
        if given:
            raise ConfigError("algorithm.bits", f"algorithm.bits = {bits}: {why}")
    assert isinstance(clients, Rows)
    return compressed(algorithm, problem, clients, bits=bits, seed=config.run.seed)


def schedule_of(
    config: Config, step: StepSettings | None, name: str, most: float = math.inf
) -> Schedule:
    """The step sizes of the key algorithm.`name` over the rounds of the run."""
    given = step or StepSettings(1.0)
    checked = power(given.a, given.alpha, name=f"algorithm.{name}", most=most)
    return checked._replace(
        warm=given.warm, rise=given.rise, cool=given.cool, horizon=config.algorithm.most_rounds
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

    most, rule = float(np.max(config.problem.penalty)), multiplier_rule(config, problem)

    def dual() -> Dual:
        if rule == "steered":
            return steered(problem, chosen.most_rounds, penalty=most)
        return exact_penalty(problem, config.problem.penalty)

    def schedule(step: StepSettings | None, name: str, most: float = 1.0) -> Schedule:
        return schedule_of(config, step, name, most)

    def local(momentum: float = 0.0, mu: float = 0.0) -> Method:
        steps: dict[str, Any] = {
            "rate": schedule(chosen.rate, "rate", float("inf")),
            "steps": chosen.local_steps,
            "momentum": momentum,
            "mu": mu,
        }
        made = sgd(problem, batch=chosen.batch, **steps)
        return Method(made, sgd_change(problem, **steps))

    def own() -> Method:
        if config.privacy.noise_multiplier or config.privacy.epsilon:
            raise UserError(
                f"algorithm.name = {chosen.name!r}: noise is accounted for the messages of the "
                "methods of fedssca only; use one of them, or leave the noise out"
            )
        sizes = {"batch": chosen.batch, "steps": chosen.local_steps}
        rate = schedule(chosen.rate, "rate", float("inf"))
        return Method(
            own_algorithm(chosen.name, problem, **sizes, rate=rate, options=chosen.options or {})
        )

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
        more: dict[str, Any] = {"rounds": chosen.most_rounds, "tau": tau}
        if rule == "corrected":
            _check_corrected(config)
            ratios = chosen.balance or [1.0] * problem.constraints
            return Method(corrected_ssca(problem, **steps, **more, balance=ratios))
        more |= {"opening": chosen.opening or [1.0] * problem.constraints, "penalty": most}
        if chosen.local_steps > 1:
            _check_local(config, problem)
            local: dict[str, Any] = {"steps": chosen.local_steps}
            local["exact"] = chosen.surrogate == "exact"
            made = local_ssca(problem, **steps, **more, **local)
            read = {"rho": steps["rho"], "gamma": steps["gamma"], "tau": tau}
            return Method(made, local_ssca_change(problem, **read, **local))
        if problem.constraints and rule == "steered" and chosen.surrogate != "diagonal":
            return Method(steered_ssca(problem, **steps, **more))
        return Method(ssca(problem, **steps, surrogate=surrogate(), dual=dual()))

    table: dict[str, Callable[[], Method]] = {
        "ssca": sscas,
        "sgd": local,
        "fedsgd": local,
        "fedavg": local,
        "fedprox": lambda: local(mu=chosen.mu),
        "momentum": lambda: local(chosen.momentum),
        "penalty": lambda: Method(quadratic_penalty(problem, **shared(), penalty=most)),
        "primal-dual": lambda: Method(primal_dual(problem, **ascent())),
        "augmented": lambda: Method(augmented_lagrangian(problem, **ascent(), penalty=most)),
        "switching": lambda: Method(switching(problem, **shared(), tolerance=chosen.tolerance)),
    }
    return (own if chosen.own else table[chosen.name])()


def _check_local(config: Config, problem: Problem) -> None:
    """Local steps need surrogates whose curvature the server knows, and one gradient for all."""
    chosen = config.algorithm
    if chosen.surrogate == "diagonal":
        raise UserError(
            f'algorithm.local_steps = {chosen.local_steps}: surrogate "diagonal" takes one step a '
            'round; use local_steps = 1, or surrogate = "first-order"'
        )
    if problem.constraints and (rule := multiplier_rule(config, problem)) != "steered":
        raise UserError(
            f"algorithm.local_steps = {chosen.local_steps}: with constraints local steps need "
            f'multipliers = "steered", not {rule!r}'
        )


def _check_corrected(config: Config) -> None:
    """The corrected rule takes one step per round, with first-order surrogates."""
    chosen = config.algorithm
    if chosen.local_steps > 1 or chosen.surrogate == "diagonal":
        what = (
            f"algorithm.local_steps = {chosen.local_steps}"
            if chosen.local_steps > 1
            else 'algorithm.surrogate = "diagonal"'
        )
        raise UserError(f'{what}: use multipliers = "steered", or leave multipliers out')
