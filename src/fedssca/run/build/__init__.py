"""From a config, whose names and ranges the schema has resolved, to the objects of a run:

data        load the rows, and share them out to the clients
pose        the problem: model, objective, limits
begin       where training begins: a drawn point, or the model of an earlier run
calibrate   step sizes that were left open, found by probing the clients
choose      the method, in cohorts and with noise where the config asks for them
runtime     where the rounds happen
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np

from fedssca.data import Columns, Dataset, Rows
from fedssca.data.calibration import set_aside
from fedssca.errors import UserError
from fedssca.evaluate.confidence import Calibration, Promise
from fedssca.methods.algorithm import Algorithm
from fedssca.privacy.noise.messages import MessageNoise
from fedssca.problem.problem import Problem
from fedssca.rounds.check import check_fit
from fedssca.rounds.personal import carrying
from fedssca.run.aim import aimed, count_noise
from fedssca.run.build.begin import begun, started, trained_parts
from fedssca.run.build.calibrate import calibrated, probing
from fedssca.run.build.choose import in_cohorts, in_few_bits, method_of, not_waiting
from fedssca.run.build.data import (
    data_source,
    encoding_rules,
    load_dataset,
    reading_of,
    share_out,
)
from fedssca.run.build.pose import l2_of, network_of, problem_of, task_of
from fedssca.run.build.runtime import RUNTIMES, Engine, engine_of
from fedssca.run.config import Config
from fedssca.run.privacy import check_columns, noise_of

__all__ = [
    "RUNTIMES",
    "Engine",
    "Job",
    "build",
    "check_promise",
    "data_source",
    "encoding_rules",
    "engine_of",
    "for_horizon",
    "load_dataset",
    "network_of",
    "plan",
    "probing",
    "problem_of",
    "reading_of",
    "share_out",
    "start_of",
    "task_of",
]


class Job(NamedTuple):
    """All parts of a run; `config` has everything that was left open filled in."""

    config: Config
    dataset: Dataset
    clients: Rows | Columns
    problem: Problem
    algorithm: Algorithm
    noise: MessageNoise | None = None
    """Clipping and noise of the messages; None where the run asks for neither."""
    calibration: Promise | None = None
    """The rows that were set aside, and what is promised with them; None without a confidence."""


def build(
    config: Config,
    dataset: Dataset | None = None,
    clients: Rows | Columns | None = None,
    engine: Engine | None = None,
) -> Job:
    """Load, share, pose, calibrate, choose: the parts of a run from its resolved config.

    With `dataset` given nothing is loaded: its rows stand in for those that the config names. With
    `clients` given nothing is shared out, and `engine` probes them in place of the config's
    runtime.
    """
    if config.problem.confidence and not config.problem.constraint:
        warnings.warn(
            f"problem.confidence = {config.problem.confidence:g} certifies nothing, because no "
            "limit is stated: add a [[problem.constraint]]",
            stacklevel=2,
        )
    dataset = dataset or load_dataset(config)
    clients, calibration = divided(config, dataset, clients)
    if clients.count != config.data.clients:  # clients that have files of their own
        own = dataclasses.replace(config.data, clients=clients.count)
        config = dataclasses.replace(config, data=own)
    posed = dataclasses.replace(config.problem, l2=l2_of(config, dataset, clients))
    config = dataclasses.replace(config, problem=posed)
    posed_for = config, dataset, clients
    problem = trained_parts(*posed_for, begun(*posed_for, problem_of(*posed_for)))
    config = calibrated(config, problem, clients, engine or engine_of(config))
    job = _job(config, dataset, clients, problem)
    noise = job.noise.calibration if job.noise is not None else None
    if calibration is not None:
        if noise is not None:
            rows = len(calibration.rows["client"])
            counts = count_noise(problem, clients, noise, rows, config.run.seed)
            calibration = calibration._replace(noise=counts)
        check_promise(config, problem, calibration)
    return job._replace(calibration=calibration)


def divided(
    config: Config, dataset: Dataset, clients: Rows | Columns | None = None
) -> tuple[Rows | Columns, Calibration | None]:
    """The clients with their training rows, and the calibration rows of a run with a confidence."""
    if clients is not None or dataset.aside is None:
        return clients or share_out(config.data, dataset, config.run.seed), None
    whole = share_out(config.data, dataset, config.run.seed)
    clients, rows = set_aside(whole, dataset.aside)
    sites = clients.count if isinstance(clients, Rows) else 1
    each = config.problem.certify == "each_site"
    return clients, Calibration(rows, None, each, config.problem.clip, sites)


def check_promise(config: Config, problem: Problem, given: Promise) -> None:
    """Say before training which limits cannot be certified with so few rows, or stop."""
    for line in given.tester(problem).impossible(problem.start):
        if config.problem.uncertified == "stop":
            raise UserError(line)
        warnings.warn(f"{line}; the run goes on without certifying it", stacklevel=3)


def plan(
    config: Config, dataset: Dataset, clients: Rows | Columns, start: np.ndarray | None = None
) -> Job:
    """The same with step sizes as they are: nothing is probed, and warnings are left to `build`.

    `start` are the parameters of the model in w(1), where they are not drawn from the seed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = problem_of(config, dataset, clients)
        if start is not None:
            problem = started(problem, start)
        return _job(config, dataset, clients, trained_parts(config, dataset, clients, problem))


def start_of(config: Config, dataset: Dataset, clients: Rows | Columns) -> np.ndarray | None:
    """The parameters of the run `model.start` in w(1); None if they are drawn from the seed."""
    if not config.model.start:
        return None
    problem = begun(config, dataset, clients, problem_of(config, dataset, clients))
    return np.asarray(problem.model(problem.start))


def for_horizon(job: Job, rounds: int) -> Job:
    """The same job with the method of a run of so many rounds; warnings are left to `build`."""
    if job.config.algorithm.rounds == rounds:
        return job
    chosen = dataclasses.replace(job.config.algorithm, rounds=rounds)
    config = dataclasses.replace(job.config, algorithm=chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _job(config, job.dataset, job.clients, job.problem)


def _job(config: Config, dataset: Dataset, clients: Rows | Columns, problem: Problem) -> Job:
    method = method_of(config, problem)
    algorithm = in_few_bits(config, problem, clients, method.algorithm)
    algorithm = in_cohorts(config, clients, algorithm)
    check_fit(problem, clients, algorithm)
    probes = config.algorithm.probes
    made, noise = noise_of(config, problem, clients, algorithm, method.change, probes)
    if noise is not None and noise.calibration is not None:
        method = method_of(config, aimed(config, problem, clients, noise.calibration))
        algorithm = in_cohorts(config, clients, method.algorithm)
        made, noise = noise_of(config, problem, clients, algorithm, method.change, probes)
    made = not_waiting(config, problem, clients, made)
    if problem.personal is not None:
        made = carrying(made, problem.personal, clients.count)
    if isinstance(clients, Columns):
        check_columns(config, problem, clients)
        if clients.collection == "open":
            _warn_open(problem)
    return Job(config, dataset, clients, problem, made, noise)


def _warn_open(problem: Problem) -> None:
    """The one-step collection of the paper sends the Jacobian of h_i: with h_i linear, the data."""
    linear = problem.vertical is not None and problem.vertical.linear
    what = "its rows of x, as they are" if linear else "the Jacobian of its first layer"
    warnings.warn(
        f'data.collection = "open": every party sends the server {what}; '
        'use "exchange" where features are private',
        stacklevel=4,
    )
