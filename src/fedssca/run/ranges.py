"""Numbers of a config that make no sense, alone or together: said before any data is read."""

from __future__ import annotations

import numpy as np

from fedssca.errors import UserError
from fedssca.run.config import Config, Step
from fedssca.run.privacy import check_amounts

__all__ = ["check_ranges"]

LEAST = {
    "algorithm.batch": 1,
    "algorithm.cohort": 0,
    "algorithm.local_steps": 1,
    "algorithm.probes": 0,
    "algorithm.rounds": 1,
    "data.clients": 1,
    "data.label_holder": -1,
    "model.hidden": 1,
    "privacy.key_holder": 0,
    "privacy.neighbours": 0,
    "run.checkpoint_every": 0,
    "run.evaluate_every": 1,
    "run.seed": 0,
}


def check_ranges(config: Config) -> None:
    """Numbers that make no sense, before any data is read."""
    for key, least in LEAST.items():
        section, name = key.split(".")
        value = getattr(getattr(config, section), name)
        if not least <= value < 2**31:
            bound = f"at least {least}" if value < least else "less than 2^31"
            raise UserError(f"{key} = {value}: it must be {bound}")
    for name in ("rho", "gamma", "rate", "dual_rate"):
        step: Step | None = getattr(config.algorithm, name)
        if step and step.rise < 0:
            raise UserError(f"algorithm.{name}.rise = {step.rise}: it must be at least 0")
        if step and not 0 <= step.cool <= 1:
            raise UserError(f"algorithm.{name}.cool = {step.cool}: it must lie in [0, 1]")
    _check_privacy(config)
    check_amounts(config.privacy)
    penalty = np.atleast_1d(config.problem.penalty)
    if not penalty.size or not (penalty > 0).all():
        raise UserError(f"problem.penalty = {config.problem.penalty}: it must be positive")


def _check_privacy(config: Config) -> None:
    """Settings of hidden sums that make no sense, alone or together."""
    chosen = config.privacy
    if chosen.secure_sum and chosen.homomorphic:
        raise UserError(
            "privacy.secure_sum and privacy.homomorphic hide the same sums in two ways: choose one "
            "(secure_sum, unless a key holder is wanted)"
        )
    if chosen.threshold and not 0.5 < chosen.threshold <= 1:
        raise UserError(
            f"privacy.threshold = {chosen.threshold:g}: it must lie above 0.5 and not above 1; 0 "
            "leaves it open"
        )
    if chosen.homomorphic and config.data.split == "feature":
        raise UserError(
            "privacy.homomorphic adds up messages of clients that hold rows: with data.split = "
            '"feature" use privacy.secure_sum'
        )
