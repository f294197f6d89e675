"""From a Config to the objects that a run needs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedssca.data import Columns, Dataset, Rows, by_feature, by_sample, load
from fedssca.errors import UserError, nearest
from fedssca.methods.algorithm import Algorithm
from fedssca.methods.calibrate import PROBES, calibrate, probe
from fedssca.methods.curvature import diagonal
from fedssca.methods.local_ssca import local_ssca
from fedssca.methods.multipliers import Dual, exact_penalty, steered
from fedssca.methods.participation import participation
from fedssca.methods.rivals import augmented_lagrangian, primal_dual, quadratic_penalty, switching
from fedssca.methods.schedule import Schedule, power
from fedssca.methods.sgd import sgd
from fedssca.methods.ssca import ssca
from fedssca.methods.steered import steered_ssca
from fedssca.methods.surrogate import Surrogate, first_order
from fedssca.problem.constraints import Constraint, from_config
from fedssca.problem.models import classifier, linear, mlp
from fedssca.problem.problem import Problem
from fedssca.rounds.check import check_fit
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.rounds.loop import Runtime
from fedssca.run import schema as cfg
from fedssca.run.privacy import (
    check_columns,
    hidden,
    hides_columns,
    hides_sums,
    loudness,
    simulated,
    simulated_exchange,
)

__all__ = [
    "RUNTIMES",
    "Engine",
    "Job",
    "build",
    "engine_of",
    "load_dataset",
    "plan",
    "problem_of",
    "share_out",
]

RUNTIMES: dict[str, Any] = {"fused": Fused, "local": Local}


class Job(NamedTuple):
    """All parts of a run; `config` with everything that was left open filled in."""

    config: cfg.Config
    dataset: Dataset
    clients: Rows | Columns
    problem: Problem
    algorithm: Algorithm


Engine = Callable[[Problem, Rows | Columns, Algorithm, int], Runtime]
"""Makes a runtime for a problem, its clients, a method and a seed."""


def engine_of(config: cfg.Config) -> Engine:
    """The runtime that a config names; where something is hidden, the one that moves messages."""

    def made(p: Problem, clients: Rows | Columns, algorithm: Algorithm, seed: int) -> Runtime:
        if not hides_sums(config) and not hides_columns(config, p):
            runtime: Runtime = RUNTIMES[config.run.runtime](p, clients, algorithm, seed)
            return runtime
        sums = simulated(config, clients.count)
        exchange = simulated_exchange(config, p, clients)
        return Local(p, clients, algorithm, seed, sums=sums, exchange=exchange)

    return made


def build(
    config: cfg.Config,
    dataset: Dataset | None = None,
    clients: Rows | Columns | None = None,
    engine: Engine | None = None,
) -> Job:
    """Load the data, share it out, write down the problem, choose the method.

    With `dataset` given nothing is loaded: its rows stand in for those that the config names. With
    `clients` given nothing is shared out, and `engine` probes them in place of the config's
    runtime.
    """
    dataset = dataset or load_dataset(config)
    clients = clients or share_out(config.data, dataset, config.run.seed)
    problem = problem_of(config, dataset, clients)
    config = _calibrated(config, problem, clients, engine or engine_of(config))
    return _job(config, dataset, clients, problem)


def plan(config: cfg.Config, dataset: Dataset, clients: Rows | Columns) -> Job:
    """The same for step sizes as they are: nothing is probed, and `build` does the warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _job(config, dataset, clients, problem_of(config, dataset, clients))


def problem_of(
    config: cfg.Config,
    dataset: Dataset,
    clients: Rows | Columns,
    features: Sequence[np.ndarray] | None = None,
) -> Problem:
    """The problem that a config names; `features`: for parties with these columns in any case."""
    blocks = clients.blocks if isinstance(clients, Columns) else None
    return classifier(
        model_of(config, dataset),
        [c for entry in config.problem.constraint for c in _limits(entry, dataset, clients)],
        objective=config.problem.objective,
        l2=config.problem.l2,
        features=blocks if features is None else features,
        seed=config.run.seed,
    )


def _job(config: cfg.Config, dataset: Dataset, clients: Rows | Columns, problem: Problem) -> Job:
    algorithm = _in_cohorts(config, clients, _algorithm(config, problem))
    check_fit(problem, clients, algorithm)
    algorithm = hidden(config, problem, clients, algorithm, config.algorithm.probes)
    if isinstance(clients, Columns):
        check_columns(config, problem, clients)
        if clients.collection == "open":
            _warn_open(problem)
    return Job(config, dataset, clients, problem, algorithm)


def choose(table: dict[str, Any], name: str, key: str) -> Any:
    """table[name], or a UserError with the nearest known name."""
    if name not in table:
        raise UserError(f"{key} = {name!r} is unknown: {nearest(name, table)}")
    return table[name]


def _warn_open(problem: Problem) -> None:
    """The one-step collection of the paper sends the Jacobian of h_i: with h_i linear, the data."""
    linear = problem.vertical is not None and problem.vertical.linear
    what = "its rows of x, as they are" if linear else "the Jacobian of its first layer"
    warnings.warn(
        f'data.collection = "open": every party sends the server {what}; '
        'use "exchange" where features are private',
        stacklevel=4,
    )


def _limits(
    entry: cfg.ConstraintSettings, dataset: Dataset, clients: Rows | Columns
) -> list[Constraint]:
    options = {"positive": entry.positive, "column": entry.column, "sharpness": entry.sharpness}
    given = {name: value for name, value in options.items() if value is not None}
    sizes = clients.sizes if isinstance(clients, Rows) else None
    return from_config(entry.kind, entry.limit, given, clients.beside(), dataset.classes, sizes)


def _calibrated(
    config: cfg.Config, problem: Problem, clients: Rows | Columns, engine: Engine
) -> cfg.Config:
    """Step sizes that were left open, found by probing the clients."""
    chosen, run = config.algorithm, config.run
    wanted = [chosen.rho, chosen.gamma, chosen.tau]
    if _weighed(config) and problem.constraints:
        wanted.append(chosen.opening)
    if chosen.name != "ssca" or None not in wanted:
        return config

    def asked(probing: Algorithm) -> Algorithm:
        return as_asked(config, problem, clients, probing)

    if chosen.batch <= (min(clients.sizes) if isinstance(clients, Rows) else clients.total):
        found = calibrate(
            problem,
            chosen.batch,
            chosen.rounds,
            lambda probing: engine(problem, clients, asked(probing), run.seed),
            noise=loudness(asked(probe(problem, chosen.batch)), clients),
            **{
                name: step.a
                for name, step in (("rho", chosen.rho), ("gamma", chosen.gamma))
                if step
            },
        )
        chosen = dataclasses.replace(
            chosen,
            rho=chosen.rho or cfg.StepSettings(found.rho.a, warm=True),
            gamma=chosen.gamma
            or cfg.StepSettings(found.gamma.a, rise=found.gamma.rise, cool=found.gamma.cool),
            tau=list(found.tau) if chosen.tau is None else chosen.tau,
            opening=list(found.opening) if chosen.opening is None else chosen.opening,
            probes=PROBES,
        )
    return dataclasses.replace(config, algorithm=chosen)


def as_asked(
    config: cfg.Config, problem: Problem, clients: Rows | Columns, probing: Algorithm
) -> Algorithm:
    """The probing rounds in cohorts and under noise, where the run itself is; that will warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hidden(config, problem, clients, _in_cohorts(config, clients, probing), PROBES)


def _in_cohorts(config: cfg.Config, clients: Rows | Columns, algorithm: Algorithm) -> Algorithm:
    """The method with as many clients a round as the config says."""
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


def _weighed(config: cfg.Config) -> bool:
    """One gradient for all limits, or one for every term (the paper's, and other surrogates)."""
    chosen = config.algorithm
    return chosen.multipliers == "steered" and chosen.surrogate in ("first-order", "exact")


def load_dataset(config: cfg.Config) -> Dataset:
    """The data that a config names, with the columns that its constraints ask for."""
    data, seed = config.data, config.run.seed
    wanted = [entry.column for entry in config.problem.constraint if entry.column]
    return load(
        None if data.path else data.name,
        path=data.path or None,
        directory=Path(data.dir) if data.dir else None,
        label=data.label or None,
        test_fraction=data.test_fraction,
        seed=seed,
        keep=list(dict.fromkeys([*data.keep, *wanted])) if data.path else data.keep,
    )


def share_out(data: cfg.DataSettings, dataset: Dataset, seed: int) -> Rows | Columns:
    """The training rows (or their features) given out to clients, as the config says."""
    sizes = [int(s) if s.is_integer() else s for s in data.sizes] or None
    if data.split == "sample":
        return by_sample(
            dataset.train,
            data.clients,
            data.partition,
            seed=seed,
            concentration=data.concentration,
            sizes=sizes,
            classes_per_client=data.classes_per_client,
        )
    return by_feature(
        dataset.train,
        data.clients,
        "contiguous" if data.partition == "iid" else data.partition,
        seed=seed,
        sizes=sizes,
        label_holder=data.label_holder if data.label_holder >= 0 else None,
        collection=data.collection,
    )


def model_of(config: cfg.Config, dataset: Dataset) -> Any:
    """The network that a config names, for this data."""
    width, model = dataset.train["x"].shape[1], config.model
    shape: dict[str, Any] = {"scale": dataset.scale, "dtype": config.run.precision}
    table = {
        "mlp": lambda: mlp(width, model.hidden, dataset.classes, model.activation, **shape),
        "linear": lambda: linear(width, dataset.classes, **shape),
    }
    return choose(table, model.name, "model.name")()


def _algorithm(config: cfg.Config, problem: Problem) -> Algorithm:
    chosen = config.algorithm
    tau = 1.0 if chosen.tau is None else chosen.tau

    def surrogate() -> Surrogate:
        table = {
            "first-order": lambda: first_order(problem, tau),
            "exact": lambda: first_order(problem, tau, exact=True),
            "diagonal": lambda: diagonal(problem, tau),
        }
        made: Surrogate = choose(table, chosen.surrogate, "algorithm.surrogate")()
        return made

    most = float(np.max(config.problem.penalty))

    def rule() -> Dual:
        table = {
            "steered": lambda: steered(problem, chosen.rounds, penalty=most),
            "exact": lambda: exact_penalty(problem, config.problem.penalty),
        }
        made: Dual = choose(table, chosen.multipliers, "algorithm.multipliers")()
        return made

    def schedule(step: cfg.StepSettings | None, name: str, most: float = 1.0) -> Schedule:
        given = step or cfg.StepSettings(1.0)
        checked = power(given.a, given.alpha, name=f"algorithm.{name}", most=most)
        return checked._replace(
            warm=given.warm, rise=given.rise, cool=given.cool, horizon=chosen.rounds
        )

    def local(momentum: float) -> Algorithm:
        return sgd(
            problem,
            batch=chosen.batch,
            rate=schedule(chosen.rate, "rate", float("inf")),
            steps=chosen.local_steps,
            momentum=momentum,
        )

    def shared() -> dict[str, Any]:
        rate = schedule(chosen.rate, "rate", float("inf"))
        return {"batch": chosen.batch, "rate": rate, "momentum": chosen.momentum}

    def ascent() -> dict[str, Any]:
        dual_rate = schedule(chosen.dual_rate, "dual_rate", float("inf"))
        return shared() | {"dual_rate": dual_rate, "initial": chosen.initial}

    def sscas() -> Algorithm:
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
            exact = chosen.surrogate == "exact"
            return local_ssca(problem, **steps, **more, steps=chosen.local_steps, exact=exact)
        if problem.constraints and _weighed(config):
            return steered_ssca(problem, **steps, **more)
        return ssca(problem, **steps, surrogate=family, dual=dual)

    table = {
        "ssca": sscas,
        "sgd": lambda: local(0.0),
        "momentum": lambda: local(chosen.momentum),
        "penalty": lambda: quadratic_penalty(problem, **shared(), penalty=most),
        "primal-dual": lambda: primal_dual(problem, **ascent()),
        "augmented": lambda: augmented_lagrangian(problem, **ascent(), penalty=most),
        "switching": lambda: switching(problem, **shared(), tolerance=chosen.tolerance),
    }
    made: Algorithm = choose(table, chosen.name, "algorithm.name")()
    return made


def _check_local(config: cfg.Config, problem: Problem) -> None:
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
