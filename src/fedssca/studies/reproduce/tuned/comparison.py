"""The fair comparison: every method tuned with the same budget, then raced on the test rows.

An entry is a method with a batch size B and E local steps. All entries get the same number of
trials at the same low-discrepancy points; a trial trains on 80 % of the training rows and is looked
at on the rest. For every target accuracy the trial that got there in the fewest rounds wins; the
winner trains again, on all training rows and with other seeds, and is looked at on the test rows,
which nothing has seen before. So a method is judged at 90 % with settings for 90 %.

A point has three coordinates, and they mean the same to every method:

    step     how far a local step moves, per unit of a gradient that stays: 0.03 to 10 (log)
    decay    in round t the step is divided by t^decay: 0 to 0.5 (even)
    memory   the share of the old direction that a step keeps: 0 to 0.9 (even)

    sgd        rate = step; there is no memory
    momentum   momentum = memory. It begins each round at rest, so that step j of a round moves
               rate (1 - memory^j) / (1 - memory): rate is such that the mean over the E steps is
               `step`. With E = 1 this is sgd, and is trained once for both
    ssca       rho = 1 - memory, gamma = 0.01. With one step a round rho is 1/t while that is more;
               with local steps the first round begins at rest, as momentum does. Without l2 it
               is v <- (1 - rho) (1 - gamma) v + rho g / (2 tau), w <- w - gamma v: a gradient that
               stays moves it by gamma / (2 tau) rho / (rho + gamma - rho gamma), and tau is such
               that this is `step`

Thus all search the same steps and decays, and those with memory the same memories: no range favours
anyone. In ssca gamma and tau count by gamma / (2 tau), and gamma adds to the forgetting. It is
small so that rho alone decides the memory, and so that the step is `step` from the first round on,
while rho is 1/t, until gamma has decayed: with gamma = 0.1 and memory 0.9 the first steps would be
twice as long.
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
from fedssca.run.tune import Range
from fedssca.studies.reproduce.cache import Cache, run_key
from fedssca.studies.reproduce.race_run import (
    Crew,
    Curve,
    Item,
    Progress,
    carry_out,
    looks,
    one_by_one,
    record_of,
    rounds_to_target,
)

__all__ = ["FEATURE", "LONG", "SAMPLE", "TARGETS", "Entry", "Outcome", "race"]

TARGETS = (0.90, 0.92, 0.95, 0.97)
POINT = (
    Range("step", 0.03, 10.0),
    Range("decay", 0.0, 0.5, "even"),
    Range("memory", 0.0, 0.9, "even"),
)
GAMMA = 0.01


@dataclass(frozen=True)
class Entry:
    """A method with B samples a local step and E local steps a round; a trial has `rounds`."""

    method: str
    batch: int
    steps: int
    rounds: int

    @property
    def load(self) -> int:
        """Samples that a client goes through in a round."""
        return self.batch * self.steps

    @property
    def name(self) -> str:
        """As in "sgd 50x2"."""
        return f"{self.method} {self.batch}x{self.steps}"

    @property
    def twin(self) -> str:
        """The entry that this one is the same as, if any."""
        return f"sgd {self.batch}x1" if self.method == "momentum" and self.steps == 1 else ""


def _entries(rounds: int, *shapes: tuple[int, int]) -> tuple[Entry, ...]:
    return tuple(Entry(m, b, e, rounds) for m in ("ssca", "sgd", "momentum") for b, e in shapes)


SAMPLE = _entries(1000, (10, 1)) + _entries(300, (100, 1), (50, 2), (10, 10))
LONG = _entries(100, (6000, 1), (600, 10), (60, 100))
FEATURE = _entries(1000, (10, 1)) + _entries(300, (100, 1)) + _entries(300, (1000, 1))


@dataclass(frozen=True)
class Outcome:
    """How one entry did at one target."""

    entry: Entry
    target: float
    trials: int
    fit: int
    """So many of the trials reached the target."""
    settings: tuple[str, ...] = ()
    """The winner's, as `--set` takes them; none: no trial reached the target."""
    searched: float | None = None
    """The winner's rounds in the search."""
    seeds: tuple[int, ...] = ()
    rounds: tuple[float | None, ...] = ()
    """Of each run of the winner; None: the run did not reach the target."""
    samples: int = 0
    """All clients' in a round."""
    wire: tuple[int, ...] = (0, 0, 0)
    """Bytes a round: up, down, among clients."""

    @property
    def done(self) -> list[float]:
        """The rounds of the runs that reached the target."""
        return [value for value in self.rounds if value is not None]

    @property
    def sure(self) -> bool:
        """Every run reached the target."""
        return bool(self.rounds) and None not in self.rounds

    @property
    def mean(self) -> float:
        """The rounds needed, over the runs that reached the target."""
        return math.fsum(self.done) / len(self.done) if self.done else math.nan

    @property
    def sd(self) -> float:
        """How much those runs differ."""
        if len(self.done) < 2:
            return math.nan
        return math.sqrt(math.fsum((v - self.mean) ** 2 for v in self.done) / (len(self.done) - 1))


def race(
    base: Config,
    entries: Sequence[Entry],
    cache: Cache,
    *,
    mark: str,
    trials: int = 20,
    runs: int = 5,
    seed: int = 0,
    targets: Sequence[float] = TARGETS,
    crew: Crew = one_by_one,
    progress: Progress = lambda done, total, label: None,
) -> list[Outcome]:
    """Tune every entry and race the winners: one outcome an entry and target.

    `base` says data, model and problem; `mark` stands for the rows in the cache's keys. What the
    cache holds is not trained again. `seed` decides points, held-out rows and the trials' batches;
    the winners' runs have the seeds after it. They may take twice the rounds of a trial.
    """
    _check(base, entries, trials, runs, seed, targets)
    points, seeds = draw(trials, seed), tuple(range(seed + 1, seed + 1 + runs))

    def item(entry: Entry, number: int, seed: int, held: int | None, stop: float) -> Item:
        return _item(base, mark, entry, settings(entry, points[number]), seed, held, stop)

    search = {e: [item(e, n, seed, seed, max(targets)) for n in range(trials)] for e in entries}
    later = math.fsum(2 * runs * items[0].cost for items in search.values())
    spent = carry_out(
        _flat(search.values()), cache, crew, lambda d, t, name: progress(d, t + later, name)
    )
    curves = {e: [record_of(cache, i)["curve"] for i in items] for e, items in search.items()}
    won = {(e, target): winner(curves[e], target) for e in entries for target in targets}
    finals = {
        (e, n): [item(dataclasses.replace(e, rounds=2 * e.rounds), n, s, None, stop) for s in seeds]
        for (e, n), stop in _stops(won).items()
    }
    carry_out(
        _flat(finals.values()), cache, crew, lambda d, t, name: progress(spent + d, spent + t, name)
    )
    out = []
    for (entry, target), number in won.items():
        times = [rounds_to_target(curve, target) for curve in curves[entry]]
        outcome = Outcome(entry, target, trials, trials - times.count(None))
        if number is not None:
            records = [record_of(cache, i) for i in finals[entry, number]]
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
    """The points of the search; more trials with the same seed begin with the same."""
    points = qmc.Halton(len(POINT), scramble=True, rng=seed).random(trials)
    return [{r.key: r.at(q, False) for r, q in zip(POINT, point, strict=True)} for point in points]


def settings(entry: Entry, point: dict[str, float]) -> tuple[str, ...]:
    """A point as settings of the entry's method, as `--set` takes them."""
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
    elif entry.method == "sgd" or entry.twin:
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
    """The number of the trial with the fewest rounds to the target, the first one of equals."""
    times = [(rounds_to_target(curve, target), number) for number, curve in enumerate(curves)]
    return min(((t, number) for t, number in times if t is not None), default=(0, None))[1]


def _item(
    base: Config,
    mark: str,
    entry: Entry,
    chosen: Sequence[str],
    seed: int,
    held: int | None,
    stop: float,
) -> Item:
    shape = AlgorithmSettings(batch=entry.batch, local_steps=entry.steps, rounds=entry.rounds)
    config = parse(
        render(dataclasses.replace(base, algorithm=shape)), [*chosen, f"run.seed={seed}"]
    )
    at, data = looks(entry.rounds), base.data
    key = run_key(f"race {base.run.seed} {held} {stop}", config, at, mark)
    rows = entry.load * (data.clients if data.split == "sample" else 1)
    cost = 1.5 + 0.03 * len(at) + entry.rounds * (4e-3 * entry.steps - 3.5e-3 + 1.2e-5 * rows)
    return Item(entry.name, key, render(config), cost, base.run.seed, held, stop)


def _stops(won: dict[tuple[Entry, float], int | None]) -> dict[tuple[Entry, int], float]:
    """Every distinct winner, and the highest target that it is raced to."""
    out: dict[tuple[Entry, int], float] = {}
    for (entry, target), number in won.items():
        if number is not None:
            out[entry, number] = max(target, out.get((entry, number), 0.0))
    return out


def _flat(groups: Iterable[Sequence[Item]]) -> list[Item]:
    """All items, each training once."""
    out: dict[str, Item] = {}
    for item in (item for items in groups for item in items):
        out.setdefault(item.key, item)
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
        raise UserError('sgd knows no limits: race with problem.objective = "loss", no constraint')
    for name, value in (("trials", trials), ("runs", runs), ("entries", len(entries))):
        if value < 1:
            raise UserError(f"{name} = {value}: it must be at least 1")
    if not 0 <= seed < 2**31 - 1 - runs:
        raise UserError(f"seed = {seed}: it must lie between 0 and 2^31 - 2 - runs")
    if not targets or not all(0 < target < 1 for target in targets):
        raise UserError(f"targets = {list(targets)}: give accuracies between 0 and 1")
