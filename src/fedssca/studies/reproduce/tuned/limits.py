"""The tuned comparison with a limit: min |w|^2 s.t. F(w) <= U, every method with the same budget.

An entry is a method with a batch size B. All get the same number of trials at the same
low-discrepancy points of the ranges of `fedssca tune`, on 80 % of the training rows. The best trial
is the one that breaks the limit least, and among those that keep it the one with the smallest
|w|^2. Its settings are used again on all training rows with other seeds. Methods are compared by
the number of these runs that keep the limit, and by |w|^2 among the runs that keep it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from fedssca.errors import UserError
from fedssca.run.config import Config, render
from fedssca.run.schema import AlgorithmSettings
from fedssca.run.tune.space import RIVALS, points
from fedssca.run.tune.trial import Trial, with_settings
from fedssca.studies.reproduce.cache import Cache, run_key
from fedssca.studies.reproduce.tuned.training import (
    Executor,
    Progress,
    Training,
    in_sequence,
    stored_record,
    train_missing,
)

__all__ = ["METHODS", "LimitEntry", "LimitOutcome", "compare_with_limit"]

OURS = ("exact", "corrected", "steered")
"""The paper's Algorithms 2 and 4, this library's default, and its steered multipliers."""
METHODS = (*OURS, *RIVALS)


@dataclass(frozen=True)
class LimitEntry:
    """A method with a batch size."""

    method: str
    batch: int
    rounds: int

    @property
    def name(self) -> str:
        """The name in tables, for example "primal-dual B=100"."""
        return f"{self.method} B={self.batch}"

    @property
    def tuned_as(self) -> str:
        """The method whose ranges it has: ours differ in what they do with multipliers."""
        return "ssca" if self.method in OURS else self.method


@dataclass(frozen=True)
class LimitOutcome:
    """The result of one entry."""

    entry: LimitEntry
    limit: float
    trials: int
    kept_trials: int
    """The number of trials that kept the limit."""
    settings: tuple[str, ...]
    """The best settings, in the form of `--set`; empty means calibrated step sizes."""
    seeds: tuple[int, ...]
    costs: tuple[float | None, ...]
    """F at the end of every run on all training rows; None if it diverged."""
    objectives: tuple[float | None, ...]
    violations: tuple[float | None, ...]
    accuracies: tuple[float | None, ...]

    @property
    def kept(self) -> list[float]:
        """|w|^2 of the runs that keep the limit."""
        pairs = zip(self.objectives, self.violations, strict=True)
        return [norm for norm, broken in pairs if norm is not None and broken == 0]

    @property
    def sure(self) -> bool:
        """Whether every run keeps the limit."""
        return len(self.kept) == len(self.seeds)

    @property
    def mean(self) -> float:
        """The mean |w|^2 of the runs that keep the limit."""
        return math.fsum(self.kept) / len(self.kept) if self.kept else math.nan

    @property
    def sd(self) -> float:
        """The standard deviation of |w|^2 of those runs."""
        if len(self.kept) < 2:
            return math.nan
        return math.sqrt(math.fsum((v - self.mean) ** 2 for v in self.kept) / (len(self.kept) - 1))


def compare_with_limit(
    base: Config,
    entries: Sequence[LimitEntry],
    cache: Cache,
    *,
    mark: str,
    trials: int = 20,
    runs: int = 5,
    seed: int = 0,
    executor: Executor = in_sequence,
    progress: Progress = lambda done, total, label: None,
) -> list[LimitOutcome]:
    """Tune every entry, and run the best settings: return one outcome per entry.

    `base` gives the data, model and problem with its limit; see `comparison.compare` for the rest.
    """
    if len(base.problem.constraint) != 1 or base.problem.objective != "norm":
        raise UserError(
            'the comparison with a limit needs problem.objective = "norm" and one limit'
        )
    seeds = tuple(range(seed + 1, seed + 1 + runs))
    drawn = {
        (method, number): chosen
        for method, number, chosen in points(base, ("ssca", *RIVALS), trials, seed)
    }

    def training(entry: LimitEntry, number: int, seed: int, held: int | None) -> Training:
        chosen = Trial(entry.tuned_as, number, drawn[entry.tuned_as, number])
        config = with_settings(_shaped(base, entry, seed), chosen)
        key = run_key(f"limit {base.run.seed} {held}", config, [entry.rounds], mark)
        rows = entry.batch * (base.data.clients if base.data.split == "sample" else 1)
        cost = 6.0 + entry.rounds * (4e-3 + 1.2e-5 * rows)
        return Training(entry.name, key, render(config), cost, base.run.seed, held, 0.0)

    search = {e: [training(e, n, seed, seed) for n in range(trials)] for e in entries}
    later = math.fsum(runs * found[0].cost for found in search.values())
    spent = train_missing(
        [t for found in search.values() for t in found],
        cache,
        executor,
        lambda done, total, name: progress(done, total + later, name),
    )
    won = {}
    for entry, found in search.items():
        ends = [stored_record(cache, t) for t in found]
        scores = [
            (math.inf, math.inf) if r["violation"] is None else (r["violation"], r["objective"])
            for r in ends
        ]
        kept = sum(score[0] == 0 for score in scores)
        won[entry] = (scores.index(min(scores)), kept)
    finals = {e: [training(e, number, s, None) for s in seeds] for e, (number, _) in won.items()}
    train_missing(
        [t for found in finals.values() for t in found],
        cache,
        executor,
        lambda done, total, name: progress(spent + done, spent + total, name),
    )
    out = []
    for entry, (number, kept) in won.items():
        ends = [stored_record(cache, t) for t in finals[entry]]
        chosen = drawn[entry.tuned_as, number]
        out.append(
            LimitOutcome(
                entry,
                base.problem.constraint[0].limit,
                trials,
                kept,
                tuple(f"{key}={value!r}" for key, value in chosen.items()),
                seeds,
                *(
                    tuple(r.get(name) for r in ends)
                    for name in ("cost", "objective", "violation", "accuracy")
                ),
            )
        )
    return out


def _shaped(base: Config, entry: LimitEntry, seed: int) -> Config:
    """Return the run of an entry before its settings."""
    chosen = AlgorithmSettings(batch=entry.batch, rounds=entry.rounds)
    if entry.method in OURS:
        chosen = dataclasses.replace(chosen, multipliers=cast(Any, entry.method))
    run = dataclasses.replace(base.run, seed=seed)
    return dataclasses.replace(base, algorithm=chosen, run=run)
