"""The search for the best settings of each method, with the same budget for every method.

Every method gets the same number of trials at the same low-discrepancy points, which its ranges in
`space.SPACES` turn into settings. A trial trains on 80 % of the training rows and is evaluated on
the rest. The test rows are not used, so the accuracy of the best settings on them is unbiased.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from fedssca.data import Dataset
from fedssca.run.build import load_dataset
from fedssca.run.config import Config
from fedssca.run.tune.space import choose_methods, points
from fedssca.run.tune.trial import Trial, carry_out, reusable
from fedssca.run.tune.validation import hold_out

__all__ = ["plan", "tune"]

Row = dict[str, Any]


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

    Without `methods` all methods that fit the problem are tuned. `seed` determines the points and
    which training rows are held out. Trials in `earlier` are not trained again. `on_trial` is
    called with each new trial, `on_row` with each row of its training. `dataset` is the data of the
    config, if it is loaded already.
    """
    methods, _ = choose_methods(config, methods)
    planned = plan(config, methods, trials, seed)
    held_out = hold_out(dataset or load_dataset(config), seed)
    known = reusable(planned, earlier)
    done = []
    with jax.enable_x64(config.run.precision == "float64"):
        for entry in planned:
            trial = known.get((entry.method, entry.number))
            if trial is None:
                trial = carry_out(config, held_out, entry, on_row)
                if on_trial:
                    on_trial(trial)
            done.append(trial)
    return done


def plan(config: Config, methods: Sequence[str], trials: int, seed: int) -> list[Trial]:
    """Return all trials of a search, without results."""
    return [Trial(*point) for point in points(config, methods, trials, seed)]
