"""The settings of each method, and the ranges in which they are searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import qmc

from fedssca.errors import UserError, nearest
from fedssca.problem.functions import own_function
from fedssca.run.config import Config

__all__ = [
    "METHODS",
    "NORM_FACTOR",
    "RIVALS",
    "SPACES",
    "WITH_LOCAL_STEPS",
    "Range",
    "choose_methods",
    "points",
    "space_of",
]

NORM_FACTOR = 100.0
"""With the norm as objective, multipliers are near 1000 and not near 1: ranges of settings that are
measured in multipliers are scaled by this factor."""


class Range(NamedTuple):
    """The range in which a setting is searched."""

    key: str
    """The key of the setting, in the form of `--set`."""
    low: float
    high: float
    scale: str = "log"
    """How quantiles are spaced: "log", "even" (linear), or "rest" (logarithmic in 1 - value)."""
    price: bool = False
    """Whether the setting is measured in multipliers, see NORM_FACTOR."""

    def at(self, quantile: float, norm: bool) -> float:
        """Return the value at a quantile in [0, 1]; `norm` says that the objective is the norm."""
        if self.scale == "even":
            value = self.low + quantile * (self.high - self.low)
        elif self.scale == "rest":
            value = 1 - (1 - self.low) * ((1 - self.high) / (1 - self.low)) ** quantile
        else:
            value = self.low * (self.high / self.low) ** quantile
        return float(f"{value * (NORM_FACTOR if self.price and norm else 1):.3g}")


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
"""Methods that take no constraints."""
WITH_LOCAL_STEPS = ("ssca", *UNCONSTRAINED)
"""Methods that can take local steps."""
RIVALS = ("primal-dual", "augmented", "penalty", "switching")
"""Methods that need constraints."""


def space_of(method: str) -> tuple[Range, ...]:
    """The ranges of a method.

    A function of the user may have an attribute `ranges`, option -> (low, high) or
    (low, high, scale); these are searched beside the learning rate.
    """
    if ":" not in method:
        return SPACES[method]
    given = getattr(own_function("method", method), "ranges", {})
    try:
        return RATE, *(Range(f"algorithm.options.{name}", *place) for name, place in given.items())
    except (AttributeError, TypeError) as error:
        raise UserError(
            f"method {method!r}: its `ranges` must be a table of option: (low, high), not {given!r}"
        ) from error


def choose_methods(config: Config, names: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the methods to tune, and notes on those left out; a named method must fit."""
    limits = config.problem.limited
    unfit = UNCONSTRAINED if limits else RIVALS
    why = "takes no constraints" if limits else "needs constraints, there are none"
    if names is None:
        fit = [name for name in METHODS if name not in unfit]
        return fit, [f"{name} is left out: it {why}" for name in unfit]
    if not names:
        raise UserError(f"no method to tune: name some of {', '.join(METHODS)}")
    for name in names:
        if ":" in name:
            space_of(name)
        elif name not in SPACES:
            raise UserError(f"no method is named {name!r}: {nearest(name, METHODS)}")
        if name in unfit:
            raise UserError(
                f"{name} does not fit this problem: it {why}; leave it out of --methods"
            )
    return list(dict.fromkeys(names)), []


def points(
    config: Config, methods: Sequence[str], trials: int, seed: int
) -> list[tuple[str, int, dict[str, float]]]:
    """Return (method, number of the trial, settings) for all trials of a search.

    Trial i of every method is point i of one low-discrepancy sequence, in the method's own ranges.
    Trial 0 of ssca uses its automatic step sizes. More trials with the same seed start with the
    same trials.
    """
    if trials < 1:
        raise UserError(f"trials = {trials}: it must be at least 1")
    if not 0 <= seed < 2**63:
        raise UserError(f"seed = {seed}: it must be a whole number from 0 to 2^63 - 1")
    spaces = SPACES | {method: space_of(method) for method in methods}
    width = max(map(len, spaces.values()))
    sequence = qmc.Halton(width, scramble=True, rng=seed).random(trials)
    norm = config.problem.objective == "norm"

    def at(method: str, point: Sequence[float]) -> dict[str, float]:
        return {r.key: r.at(q, norm) for r, q in zip(spaces[method], point, strict=False)}

    return [
        (method, number, {} if (method, number) == ("ssca", 0) else at(method, sequence[number]))
        for method in methods
        for number in range(trials)
    ]
