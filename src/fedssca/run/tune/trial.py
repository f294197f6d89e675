"""One training with drawn settings, and its result on the held-out rows."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedssca.data import Dataset
from fedssca.errors import BatchTooLarge, Diverged
from fedssca.run.build import build
from fedssca.run.config import Config, parse, render
from fedssca.run.execute import train
from fedssca.run.schema import StepSettings
from fedssca.run.tune.space import RIVALS, WITH_LOCAL_STEPS

__all__ = ["Trial", "best", "carry_out", "reusable", "with_settings"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One training of a method with drawn settings."""

    method: str
    number: int
    settings: dict[str, float]
    """The settings in the form of `--set`; empty means automatic step sizes."""
    diverged: str = ""
    """Why the training diverged; empty if it did not. Without a result the rest is unset."""
    violation: float | None = None
    """The largest F_m > 0 on the rows that trained; 0 if all limits are kept."""
    objective: float | None = None
    """|w|^2 if that is the objective; otherwise the cost, or the largest cost of a group, on the
    held-out rows. Held-out rows belong to no client: worst_client is judged on training rows."""
    validation_cost: float | None = None
    validation_accuracy: float | None = None
    norm_sq: float | None = None
    constraints: list[float] = field(default_factory=list)
    """F_m on the rows that trained."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def feasible(self) -> bool:
        """Whether the training did not diverge and all limits are kept."""
        return self.violation == 0

    @property
    def score(self) -> tuple[float, float]:
        """The violation, then the objective; less is better."""
        if self.violation is None or self.objective is None:
            return math.inf, math.inf
        return self.violation, self.objective


def reusable(plan: Sequence[Trial], earlier: Sequence[Trial]) -> dict[tuple[str, int], Trial]:
    """Return the finished trials that are in the plan with the same settings."""
    wanted = {(t.method, t.number): t.settings for t in plan}
    return {
        (t.method, t.number): t for t in earlier if wanted.get((t.method, t.number)) == t.settings
    }


def best(trials: Sequence[Trial]) -> dict[str, Trial]:
    """Return the best trial of each method; among equals the first."""
    names = dict.fromkeys(t.method for t in trials)
    return {
        name: min((t for t in trials if t.method == name), key=lambda t: t.score) for name in names
    }


def with_settings(config: Config, trial: Trial) -> Config:
    """Return the run of `config` with the method and settings of a trial."""
    method, algorithm = trial.method, config.algorithm
    algorithm = dataclasses.replace(algorithm, probes=0)
    if method == "ssca":
        algorithm = dataclasses.replace(algorithm, rho=None, gamma=None, tau=None, balance=None)
    if method != algorithm.name:
        algorithm = dataclasses.replace(algorithm, name="ssca", options=None)
    if method in RIVALS:
        algorithm = dataclasses.replace(
            algorithm, rate=StepSettings(1.0, cool=0.8), dual_rate=StepSettings(1.0)
        )
    if method not in WITH_LOCAL_STEPS and ":" not in method:
        algorithm = dataclasses.replace(algorithm, local_steps=1)
    given = [f"algorithm.name={method}"]
    given += [f"{key}={value!r}" for key, value in trial.settings.items()]
    return parse(render(dataclasses.replace(config, algorithm=algorithm)), given)


def carry_out(
    config: Config, dataset: Dataset, planned: Trial, on_row: Callable[[Row], None] | None
) -> Trial:
    """Train a planned trial; the test rows of `dataset` are the held-out rows."""
    config = with_settings(config, planned)
    sizes = config.data.sizes
    if config.data.split == "sample" and all(size.is_integer() for size in sizes):
        share = len(dataset.train["y"]) / (len(dataset.train["y"]) + len(dataset.test["y"]))
        sizes = [float(max(1, math.floor(size * share))) for size in sizes]
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, sizes=sizes))
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = _result(config, dataset, on_row)
        except BatchTooLarge as error:
            raise BatchTooLarge(f"80 % of the training rows train: {error}") from error
        except Diverged as error:
            result = {"diverged": str(error)}
    return dataclasses.replace(
        planned,
        **result,
        seconds=round(time.perf_counter() - begun, 3),
        notes=list(dict.fromkeys(str(w.message) for w in caught)),
    )


def _result(config: Config, dataset: Dataset, on_row: Callable[[Row], None] | None) -> Row:
    result = train(build(config, dataset), on_row=on_row)
    if result.diverged:
        return {"diverged": result.diverged}
    final = result.final
    objective = config.problem.objective
    judged = {"norm": "norm_sq", "loss": "test_cost"}.get(objective, "test_worst")
    return {
        "violation": max([0.0, *final["constraints"]]),
        "objective": final[judged if judged in final else "train_worst"],
        "validation_cost": final["test_cost"],
        "validation_accuracy": final.get("test_accuracy"),
        "norm_sq": final["norm_sq"],
        "constraints": final["constraints"],
    }
