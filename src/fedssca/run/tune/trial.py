"""Settings by search, with the same budget for every method.

Every method gets the same number of trials at the same low-discrepancy points, read as settings by
its own row of `SPACES`. A trial trains on 80 % of the training rows and is judged on the rest; the
test rows are never looked at, so they still tell the truth about the winner.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
from scipy.stats import qmc

from fedssca.data import Dataset
from fedssca.data.dataset import stratified
from fedssca.errors import BatchTooLarge, Diverged, UserError
from fedssca.run.build import build, load_dataset
from fedssca.run.config import Config, nearest, parse, render
from fedssca.run.execute import train
from fedssca.run.schema import StepSettings

__all__ = [
    "HELD_OUT",
    "METHODS",
    "SPACES",
    "Trial",
    "best",
    "choose_methods",
    "draw",
    "reusable",
    "settled",
    "tune",
]

Row = dict[str, Any]
HELD_OUT = 0.2
"""The share of the training rows that judge and do not train."""
PRICE = 100.0
"""With the norm as objective multipliers are near 1000, not near 1: their scales move by this."""


class Range(NamedTuple):
    """Where a setting is looked for: `scale` "log", "even", or "rest" (log for 1 - value)."""

    key: str
    low: float
    high: float
    scale: str = "log"
    price: bool = False

    def at(self, quantile: float, norm: bool) -> float:
        """The value at a quantile in [0, 1]; `norm`: the objective is the norm."""
        if self.scale == "even":
            value = self.low + quantile * (self.high - self.low)
        elif self.scale == "rest":
            value = 1 - (1 - self.low) * ((1 - self.high) / (1 - self.low)) ** quantile
        else:
            value = self.low * (self.high / self.low) ** quantile
        return float(f"{value * (PRICE if self.price and norm else 1):.3g}")


RATE = Range("algorithm.rate.a", 0.01, 3.0)
MOMENTUM = Range("algorithm.momentum", 0.0, 0.97, "rest")
DUAL_RATE = Range("algorithm.dual_rate.a", 1e-2, 10.0, price=True)
PENALTY = Range("problem.penalty", 1.0, 1e4, price=True)
SPACES: dict[str, tuple[Range, ...]] = {
    "ssca": (
        Range("algorithm.rho.a", 0.05, 1.0),
        Range("algorithm.gamma.a", 0.03, 1.0),
        Range("algorithm.tau", 3e-4, 0.3),
        Range("algorithm.rho.alpha", 0.0, 0.5, "even"),
        Range("algorithm.gamma.alpha", 0.0, 0.8, "even"),
    ),
    "sgd": (RATE, Range("algorithm.rate.alpha", 0.0, 0.6, "even")),
    "momentum": (RATE, MOMENTUM),
    "primal-dual": (RATE, MOMENTUM, DUAL_RATE),
    "augmented": (RATE, MOMENTUM, DUAL_RATE, PENALTY),
    "penalty": (RATE, MOMENTUM, PENALTY),
    "switching": (
        RATE._replace(low=0.003, high=1.0),
        MOMENTUM,
        Range("algorithm.tolerance", -0.05, 0.0, "even"),
    ),
}
METHODS = tuple(SPACES)
UNCONSTRAINED = ("sgd", "momentum")
STEPPING = ("ssca", *UNCONSTRAINED)
"""Methods that can take local steps."""
RIVALS = ("primal-dual", "augmented", "penalty", "switching")


@dataclass(frozen=True)
class Trial:
    """One training with drawn settings (none: automatic step sizes), and how it was judged."""

    method: str
    number: int
    settings: dict[str, float]
    """As `--set` takes them."""
    diverged: str = ""
    """Why nothing below is known; empty: training ended well."""
    violation: float | None = None
    """The largest F_m > 0 on the training part; 0: all limits are kept."""
    objective: float | None = None
    """|w|^2 if that is the objective, else the cost on the held-out rows."""
    validation_cost: float | None = None
    validation_accuracy: float | None = None
    norm_sq: float | None = None
    constraints: list[float] = field(default_factory=list)
    """F_m on the training part."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def feasible(self) -> bool:
        """Training ended well and all limits are kept."""
        return self.violation == 0

    @property
    def score(self) -> tuple[float, float]:
        """Less is better: first the violation, then the objective."""
        if self.violation is None or self.objective is None:
            return math.inf, math.inf
        return self.violation, self.objective


def tune(
    config: Config,
    methods: Sequence[str] | None = None,
    trials: int = 12,
    seed: int = 0,
    on_trial: Callable[[Trial], None] | None = None,
    *,
    dataset: Dataset | None = None,
    earlier: Sequence[Trial] = (),
    on_row: Callable[[Row], None] | None = None,
) -> list[Trial]:
    """Search for the best settings of each method: the same number of trials, the same points.

    `methods` None: all that fit the problem. `seed` decides the points and which training rows are
    held out. Trials in `earlier` are not trained again; `on_trial` sees each new one, `on_row` the
    rows of its training. `dataset`: what the config names, if it is loaded already.
    """
    methods, _ = choose_methods(config, methods)
    plan = draw(config, methods, trials, seed)
    parts = hold_out(dataset or load_dataset(config), seed)
    known = reusable(plan, earlier)
    done = []
    with jax.enable_x64(config.run.precision == "float64"):
        for entry in plan:
            trial = known.get((entry.method, entry.number))
            if trial is None:
                trial = _train(config, parts, entry, on_row)
                if on_trial:
                    on_trial(trial)
            done.append(trial)
    return done


def reusable(plan: Sequence[Trial], earlier: Sequence[Trial]) -> dict[tuple[str, int], Trial]:
    """Finished trials that the plan asks for, with the same settings."""
    wanted = {(t.method, t.number): t.settings for t in plan}
    return {
        (t.method, t.number): t for t in earlier if wanted.get((t.method, t.number)) == t.settings
    }


def best(trials: Sequence[Trial]) -> dict[str, Trial]:
    """The best trial of each method, the first one of equals."""
    names = dict.fromkeys(t.method for t in trials)
    return {
        name: min((t for t in trials if t.method == name), key=lambda t: t.score) for name in names
    }


def choose_methods(config: Config, names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The methods to tune, and notes on those left out; one that is named must fit."""
    limits = bool(config.problem.constraint)
    unfit = UNCONSTRAINED if limits else RIVALS
    why = "knows no constraints" if limits else "needs constraints, there are none"
    if names is None:
        fit = [name for name in METHODS if name not in unfit]
        return fit, [f"{name} is left out: it {why}" for name in unfit]
    if not names:
        raise UserError(f"no method to tune: name some of {', '.join(METHODS)}")
    for name in names:
        if name not in SPACES:
            known = ", ".join(METHODS)
            hint = nearest(name, METHODS)
            hint = f"{hint} Known are {known}" if hint.startswith("did") else f"known are {known}"
            raise UserError(f"no method is named {name!r}: {hint}")
        if name in unfit:
            raise UserError(
                f"{name} does not fit this problem: it {why}; leave it out of --methods"
            )
    return list(dict.fromkeys(names)), []


def draw(config: Config, methods: Sequence[str], trials: int, seed: int) -> list[Trial]:
    """The plan: trial i of every method is point i of one list, read by the method's ranges.

    Trial 0 of ssca is its automatic step sizes. More trials with the same seed begin with the same.
    """
    if trials < 1:
        raise UserError(f"trials = {trials}: it must be at least 1")
    if not 0 <= seed < 2**63:
        raise UserError(f"seed = {seed}: it must be a whole number from 0 to 2^63 - 1")
    width = max(map(len, SPACES.values()))
    points = qmc.Halton(width, scramble=True, rng=seed).random(trials)
    norm = config.problem.objective == "norm"

    def at(method: str, point: Sequence[float]) -> dict[str, float]:
        return {r.key: r.at(q, norm) for r, q in zip(SPACES[method], point, strict=False)}

    return [
        Trial(method, number, {} if (method, number) == ("ssca", 0) else at(method, points[number]))
        for method in methods
        for number in range(trials)
    ]


def settled(config: Config, trial: Trial) -> Config:
    """The run of `config` with a trial's method and settings; the rest stays as it is."""
    method, algorithm = trial.method, config.algorithm
    algorithm = dataclasses.replace(algorithm, probes=0)
    if method == "ssca":
        algorithm = dataclasses.replace(algorithm, rho=None, gamma=None, tau=None)
    if method in RIVALS:
        algorithm = dataclasses.replace(
            algorithm, rate=StepSettings(1.0, cool=0.8), dual_rate=StepSettings(1.0)
        )
    if method not in STEPPING:
        algorithm = dataclasses.replace(algorithm, local_steps=1)
    given = [f"algorithm.name={method}"]
    given += [f"{key}={value!r}" for key, value in trial.settings.items()]
    return parse(render(dataclasses.replace(config, algorithm=algorithm)), given)


def hold_out(dataset: Dataset, seed: int) -> Dataset:
    """The training rows as train and test: of each class a share is held out, by the seed."""
    y = dataset.train["y"]
    kept = stratified(y, HELD_OUT, seed)
    if kept.all():
        raise UserError(
            f"{dataset.name}: {len(y)} training rows are too few to hold some out; bring more"
        )
    own, held = ({k: v[rows] for k, v in dataset.train.items()} for rows in (kept, ~kept))
    return dataclasses.replace(dataset, train=own, test=held)


def _train(
    config: Config, parts: Dataset, entry: Trial, on_row: Callable[[Row], None] | None
) -> Trial:
    """Carry out one trial of the plan."""
    config = settled(config, entry)
    sizes = config.data.sizes
    if config.data.split == "sample" and all(size.is_integer() for size in sizes):
        share = len(parts.train["y"]) / (len(parts.train["y"]) + len(parts.test["y"]))
        sizes = [float(max(1, math.floor(size * share))) for size in sizes]
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, sizes=sizes))
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            judged = _judged(config, parts, on_row)
        except BatchTooLarge as error:
            raise BatchTooLarge(f"80 % of the training rows train: {error}") from error
        except Diverged as error:
            judged = {"diverged": str(error)}
    return dataclasses.replace(
        entry,
        **judged,
        seconds=round(time.perf_counter() - begun, 3),
        notes=list(dict.fromkeys(str(w.message) for w in caught)),
    )


def _judged(config: Config, parts: Dataset, on_row: Callable[[Row], None] | None) -> Row:
    final = train(build(config, parts), on_row=on_row).final
    norm = config.problem.objective == "norm"
    return {
        "violation": max([0.0, *final["constraints"]]),
        "objective": final["norm_sq" if norm else "test_cost"],
        "validation_cost": final["test_cost"],
        "validation_accuracy": final["test_accuracy"],
        "norm_sq": final["norm_sq"],
        "constraints": final["constraints"],
    }
