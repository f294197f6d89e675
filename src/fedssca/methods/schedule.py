"""Step sizes over the rounds t = 1, 2, ... and what the theorems ask of them."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax.numpy as jnp

from fedssca.errors import UserError
from fedssca.problem.problem import Array
from fedssca.problem.programs import number

__all__ = ["Schedule", "broken_conditions", "power", "warn_broken"]


class Schedule(NamedTuple):
    """The step size a / t^alpha, with options for its start and its end.

    With `warm` it is never below 1/t, so that an average begins as a plain mean. With `rise` it
    grows linearly over the first `rise` rounds; with `cool` > 0 it falls linearly to zero over the
    last share `cool` of `horizon` rounds.
    """

    a: float
    alpha: float = 0.0
    warm: bool = False
    rise: int = 0
    cool: float = 0.0
    horizon: int = 0

    def __call__(self, t: Array) -> Array:
        """The step size of round t."""
        time = jnp.asarray(t, float)
        step = number(self.a) / time ** number(self.alpha)
        if self.warm:
            step = jnp.maximum(step, 1 / time)
        if self.rise:
            step = step * jnp.minimum(time / number(self.rise), 1.0)
        if self.cool:
            left = 1 - time / number(self.horizon)
            step = step * jnp.clip(left / number(self.cool), 0.0, 1.0)
        return step


def power(a: float, alpha: float = 0.0, *, name: str = "step size", most: float = 1.0) -> Schedule:
    """A checked schedule a / t^alpha with values in (0, most]."""
    if not 0 < a <= most:
        raise UserError(f"{name}.a = {a}: it must lie in (0, {most:g}]")
    if not alpha >= 0:
        raise UserError(f"{name}.alpha = {alpha}: the step would grow; it must be >= 0")
    return Schedule(float(a), float(alpha))


def warn_broken(rho: Schedule, gamma: Schedule) -> None:
    """Tell the user, once, which conditions of the theorems the step sizes break."""
    if broken := broken_conditions(rho, gamma):
        warnings.warn(
            "convergence is not guaranteed, the step sizes break: " + "; ".join(broken),
            stacklevel=3,
        )


def broken_conditions(rho: Schedule, gamma: Schedule) -> list[str]:
    """Conditions of Theorems 1-4 that the schedules break (empty: convergence is guaranteed).

    rho -> 0, sum rho = inf; gamma -> 0, sum gamma = inf, sum gamma^2 < inf, gamma / rho -> 0.
    They are about infinite runs: a schedule that falls to zero over a known horizon is not checked.
    """
    if gamma.cool:
        return []
    r, g = rho.alpha, gamma.alpha
    checks = [
        (r > 0, "rho -> 0 needs rho.alpha > 0"),
        (r <= 1, "sum rho = inf needs rho.alpha <= 1"),
        (g > 0, "gamma -> 0 needs gamma.alpha > 0"),
        (g <= 1, "sum gamma = inf needs gamma.alpha <= 1"),
        (g > 0.5, "sum gamma^2 < inf needs gamma.alpha > 1/2"),
        (g > r, "gamma / rho -> 0 needs gamma.alpha > rho.alpha"),
    ]
    return [
        f"{text} (here rho.alpha = {r:g}, gamma.alpha = {g:g})" for ok, text in checks if not ok
    ]
