"""The tuned comparison: every method is tuned with the same budget, then run on the test rows.

An entry is a method with a batch size B and E local steps. All entries get the same number of
trials at the same low-discrepancy points. A trial trains on 80 % of the training rows and is
evaluated on the rest. For every target accuracy, the best trial is the one that reached it in the
fewest rounds. Its settings are used again on all training rows with other seeds, and these runs are
evaluated on the test rows, which no trial used. So a method is assessed at 90 % with settings
chosen for 90 %.

A point has three coordinates, and they mean the same for every method:

    step     how far a local step moves, per unit of a constant gradient: 0.03 to 10 (log)
    decay    in round t the step is divided by t^decay: 0 to 0.5 (linear)
    memory   the fraction of the old direction that a step keeps: 0 to 0.9 (linear)

    sgd        rate = step; there is no memory
    momentum   momentum = memory. It starts each round with zero velocity, so step j of a round
               moves by rate (1 - memory^j) / (1 - memory): rate is chosen such that the mean over
               the E steps is `step`. With E = 1 it equals sgd, and is trained once for both
    ssca       rho = 1 - memory, gamma = 0.01. With one step per round rho is 1/t while that is
               larger; with local steps the first round starts with zero velocity, as in momentum.
               Without l2 it is v <- (1 - rho) (1 - gamma) v + rho g / (2 tau), w <- w - gamma v:
               a constant gradient moves it by gamma / (2 tau) rho / (rho + gamma - rho gamma), and
               tau is chosen such that this is `step`

Thus all methods search the same steps and decays, and those with memory the same memories: no range
favours one method. In ssca gamma and tau matter through gamma / (2 tau), and gamma adds to the
forgetting. It is small so that rho alone determines the memory, and so that the step is `step` from
the first round on, while rho is 1/t, until gamma has decayed: with gamma = 0.1 and memory 0.9 the
first steps would be twice as long.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import qmc

from fedssca.errors import UserError
from fedssca.run.config import Config, parse, render
from fedssca.run.schema import AlgorithmSettings
from fedssca.run.tune.space import Range
from fedssca.studies.reproduce.cache import Cache, run_key
from fedssca.studies.reproduce.tuned.training import (
    Curve,
    Executor,
    Progress,
    Training,
    evaluation_rounds,
    in_sequence,
    rounds_to_target,
    stored_record,
    train_missing,
)

__all__ = ["FEATURE", "LONG", "SAMPLE", "TARGETS", "Entry", "Outcome", "compare"]

TARGETS = (0.90, 0.92, 0.95, 0.97)
POINT = (
    Range("step", 0.03, 10.0),
    Range("decay", 0.0, 0.5, "even"),
    Range("memory", 0.0, 0.9, "even"),
)
GAMMA = 0.01


@dataclass(frozen=True)
class Entry:
    """A method with a batch size and a number of local steps."""

    method: str
    batch: int
    """The number B of samples per local step."""
    steps: int
    """The number E of local steps per round."""
    rounds: int
    """The number of rounds of a trial."""

    @property
    def load(self) -> int:
        """The number of samples that a client processes in a round."""
        return self.batch * self.steps

    @property
    def name(self) -> str:
        """The name in tables, for example "sgd 50x2"."""
        return f"{self.method} {self.batch}x{self.steps}"

    @property
    def same_as(self) -> str:
        """The name of the entry that gives the same run, or an empty string."""
        return f"sgd {self.batch}x1" if self.method == "momentum" and self.steps == 1 else ""


def _entries(rounds: int, *shapes: tuple[int, int]) -> tuple[Entry, ...]:
    return tuple(Entry(m, b, e, rounds) for m in ("ssca", "sgd", "momentum") for b, e in shapes)


SAMPLE = _entries(1000, (10, 1)) + _entries(300, (100, 1), (50, 2), (10, 10))
LONG = _entries(100, (6000, 1), (600, 10), (60, 100))
FEATURE = _entries(1000, (10, 1)) + _entries(300, (100, 1)) + _entries(300, (1000, 1))


@dataclass(frozen=True)
class Outcome:
    """The result of one entry at one target accuracy."""

    entry: Entry
    target: float
    trials: int
    fit: int
    """The number of trials that reached the target."""
    settings: tuple[str, ...] = ()
    """The best settings, in the form of `--set`; empty if no trial reached the target."""
    searched: float | None = None
    """The rounds that the best trial needed."""
    seeds: tuple[int, ...] = ()
    rounds: tuple[float | None, ...] = ()
    """The rounds that each run with these settings needed; None if it missed the target."""
    samples: int = 0
    """The number of samples of all clients per round."""
    wire: tuple[int, ...] = (0, 0, 0)
    """The bytes per round: up, down, and between clients."""

    @property
    def done(self) -> list[float]:
        """The rounds of the runs that reached the target."""
        return [value for value in self.rounds if value is not None]

    @property
    def sure(self) -> bool:
        """Whether every run reached the target."""
        return bool(self.rounds) and None not in self.rounds

    @property
    def mean(self) -> float:
        """The mean rounds of the runs that reached the target."""
        return math.fsum(self.done) / len(self.done) if self.done else math.nan

    @property
    def sd(self) -> float:
        """The standard deviation of the rounds of those runs."""
        if len(self.done) < 2:
            return math.nan
        return math.sqrt(math.fsum((v - self.mean) ** 2 for v in self.done) / (len(self.done) - 1))


def compare(
    base: Config,
    entries: Sequence[Entry],
    cache: Cache,
    *,
    mark: str,
    trials: int = 20,
    runs: int = 5,
    seed: int = 0,
    targets: Sequence[float] = TARGETS,
    executor: Executor = in_sequence,
    progress: Progress = lambda done, total, label: None,
) -> list[Outcome]:
    """Tune every entry, and run the best settings: return one outcome per entry and target.

    `base` gives the data, model and problem; `mark` identifies the rows in the keys of the cache.
    Records in the cache are not trained again. `seed` determines the points, the held-out rows and
    the batches of the trials. The runs with the best settings use the seeds after it, and may take
    twice the rounds of a trial.
    """
    _check(base, entries, trials, runs, seed, targets)
    points, seeds = draw(trials, seed), tuple(range(seed + 1, seed + 1 + runs))

    def training(entry: Entry, number: int, seed: int, held: int | None, stop: float) -> Training:
        return _training(base, mark, entry, settings(entry, points[number]), seed, held, stop)

    search = {e: [training(e, n, seed, seed, max(targets)) for n in range(trials)] for e in entries}
    later = math.fsum(2 * runs * trainings[0].cost for trainings in search.values())
    spent = train_missing(
        _flat(search.values()), cache, executor, lambda d, t, name: progress(d, t + later, name)
    )
    curves = {
        e: [stored_record(cache, i)["curve"] for i in trainings] for e, trainings in search.items()
    }
    won = {(e, target): winner(curves[e], target) for e in entries for target in targets}
    finals = {
        (e, n): [
            training(dataclasses.replace(e, rounds=2 * e.rounds), n, s, None, stop) for s in seeds
        ]
        for (e, n), stop in _stops(won).items()
    }
    train_missing(
        _flat(finals.values()),
        cache,
        executor,
        lambda d, t, name: progress(spent + d, spent + t, name),
    )
    out = []
    for (entry, target), number in won.items():
        times = [rounds_to_target(curve, target) for curve in curves[entry]]
        outcome = Outcome(entry, target, trials, trials - times.count(None))
        if number is not None:
            records = [stored_record(cache, i) for i in finals[entry, number]]
            outcome = dataclasses.replace(
                outcome,
                settings=settings(entry, points[number]),
                searched=times[number],
                seeds=seeds,
                rounds=tuple(rounds_to_target(r["curve"], target) for r in records),
                samples=entry.load * (base.data.clients if base.data.split == "sample" else 1),
                wire=tuple(records[0]["wire"]),
            )
        out.append(outcome)
    return out


def draw(trials: int, seed: int) -> list[dict[str, float]]:
    """Return the points of the search; more trials with the same seed start with the same."""
    points = qmc.Halton(len(POINT), scramble=True, rng=seed).random(trials)
    return [{r.key: r.at(q, False) for r, q in zip(POINT, point, strict=True)} for point in points]


def settings(entry: Entry, point: dict[str, float]) -> tuple[str, ...]:
    """Return a point as settings of the entry's method, in the form of `--set`."""
    step, decay, memory = (point[r.key] for r in POINT)
    if entry.method == "ssca":
        rho = 1 - memory
        tau = GAMMA / (2 * step) * rho / (rho + GAMMA - rho * GAMMA)
        chosen: dict[str, Any] = {
            "name": "ssca",
            "rho": f"{{a = {rho:.3g}, warm = {str(entry.steps == 1).lower()}}}",
            "gamma": f"{{a = {GAMMA}, alpha = {decay}}}",
            "tau": f"{tau:.3g}",
        }
    elif entry.method == "sgd" or entry.same_as:
        chosen = {"name": "sgd", "rate": f"{{a = {step}, alpha = {decay}}}"}
    else:
        reach = [(1 - memory**j) / (1 - memory) for j in range(1, entry.steps + 1)]
        rate = step * entry.steps / math.fsum(reach)
        chosen = {
            "name": "momentum",
            "rate": f"{{a = {rate:.3g}, alpha = {decay}}}",
            "momentum": memory,
        }
    return tuple(f"algorithm.{key}={value}" for key, value in chosen.items())


def winner(curves: Sequence[Curve], target: float) -> int | None:
    """Return the number of the first trial with the fewest rounds to the target, or None."""
    times = [(rounds_to_target(curve, target), number) for number, curve in enumerate(curves)]
    return min(((t, number) for t, number in times if t is not None), default=(0, None))[1]


def _training(
    base: Config,
    mark: str,
    entry: Entry,
    chosen: Sequence[str],
    seed: int,
    held: int | None,
    stop: float,
) -> Training:
    shape = AlgorithmSettings(batch=entry.batch, local_steps=entry.steps, rounds=entry.rounds)
    config = parse(
        render(dataclasses.replace(base, algorithm=shape)), [*chosen, f"run.seed={seed}"]
    )
    at, data = evaluation_rounds(entry.rounds), base.data
    key = run_key(f"race {base.run.seed} {held} {stop}", config, at, mark)
    rows = entry.load * (data.clients if data.split == "sample" else 1)
    cost = 1.5 + 0.03 * len(at) + entry.rounds * (4e-3 * entry.steps - 3.5e-3 + 1.2e-5 * rows)
    return Training(entry.name, key, render(config), cost, base.run.seed, held, stop)


def _stops(won: dict[tuple[Entry, float], int | None]) -> dict[tuple[Entry, int], float]:
    """Return every distinct best trial, and the highest target for which it is the best."""
    out: dict[tuple[Entry, int], float] = {}
    for (entry, target), number in won.items():
        if number is not None:
            out[entry, number] = max(target, out.get((entry, number), 0.0))
    return out


def _flat(groups: Iterable[Sequence[Training]]) -> list[Training]:
    """Return all trainings, each once."""
    out: dict[str, Training] = {}
    for training in (training for trainings in groups for training in trainings):
        out.setdefault(training.key, training)
    return list(out.values())


def _check(
    base: Config,
    entries: Sequence[Entry],
    trials: int,
    runs: int,
    seed: int,
    targets: Sequence[float],
) -> None:
    if base.problem.constraint or base.problem.objective != "loss":
        raise UserError(
            'sgd takes no constraints: compare with problem.objective = "loss" and no constraint'
        )
    for name, value in (("trials", trials), ("runs", runs), ("entries", len(entries))):
        if value < 1:
            raise UserError(f"{name} = {value}: it must be at least 1")
    if not 0 <= seed < 2**31 - 1 - runs:
        raise UserError(f"seed = {seed}: it must lie between 0 and 2^31 - 2 - runs")
    if not targets or not all(0 < target < 1 for target in targets):
        raise UserError(f"targets = {list(targets)}: give accuracies between 0 and 1")
