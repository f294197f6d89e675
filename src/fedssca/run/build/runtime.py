"""Where the rounds of a simulated run happen, as its config says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from fedssca.data import Columns, Rows
from fedssca.methods.algorithm import Algorithm
from fedssca.problem.problem import Problem
from fedssca.rounds.aggregate import in_clear
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.rounds.loop import Runtime
from fedssca.rounds.personal import PersonalRounds
from fedssca.rounds.perturb import Perturbation
from fedssca.rounds.robust import robust_sums
from fedssca.run.privacy import hides_columns, hides_sums, simulated_exchange, simulated_sums
from fedssca.run.schema import Config

__all__ = ["RUNTIMES", "Engine", "engine_of"]

RUNTIMES: dict[str, Any] = {"fused": Fused, "local": Local}

Engine: TypeAlias = Callable[[Problem, Rows | Columns, Algorithm, int, Perturbation], Runtime]
"""Makes a runtime for a problem, its clients, a method, a seed and what perturbs messages."""


def engine_of(config: Config) -> Engine:
    """The runtime that a config names; where sums are hidden or robust, one that moves messages."""

    def made(
        problem: Problem,
        clients: Rows | Columns,
        algorithm: Algorithm,
        seed: int,
        perturbation: Perturbation,
    ) -> Runtime:
        if problem.personal is not None:
            sums = in_clear
            if hides_sums(config):
                sums = simulated_sums(config, clients.count)
            local = Local(problem, clients, algorithm, seed, perturbation, sums=sums)
            return PersonalRounds(local, problem.personal)
        if config.deploy.robust != "none" and isinstance(clients, Rows):
            sums = robust_sums(config.deploy.robust, clients.sizes)
            return Local(problem, clients, algorithm, seed, perturbation, sums=sums)
        if not hides_sums(config) and not hides_columns(config, problem):
            runtime: Runtime = RUNTIMES[config.run.runtime](
                problem, clients, algorithm, seed, perturbation
            )
            return runtime
        sums = simulated_sums(config, clients.count)
        exchange = simulated_exchange(config, problem, clients)
        return Local(problem, clients, algorithm, seed, perturbation, sums=sums, exchange=exchange)

    return made
