"""Runs that differ in their seed only: one compiled program for all, side by side on the cores.

Batching the seeds' products into one (vmap) was measured and is slower: ten parameter vectors do
not stay in the cache where one does. What pays is to compile once, and to give each core a run of
its own, because the small products of one run do not fill two cores.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from fedssca.data import Dataset, Rows
from fedssca.errors import UserError
from fedssca.evaluate.evaluator import Evaluator, evaluator_over
from fedssca.privacy.noise.messages import simulated
from fedssca.rounds.fused import Fused
from fedssca.run.build import Job, build
from fedssca.run.config import Config
from fedssca.run.execute import train
from fedssca.run.result import Result
from fedssca.run.schema import AUTO
from fedssca.system import cores

__all__ = ["train_together"]

Row = dict[str, Any]


def train_together(
    configs: Sequence[Config],
    *,
    dataset: Dataset | None = None,
    evaluate_at: Sequence[int] = (),
    threads: int | None = None,
    on_row: Callable[[int, Row], None] = lambda number, row: None,
) -> Iterator[Result]:
    """Train all `configs`, equal but for run.seed; the results are those of single runs.

    `threads` runs at a time (default: one a core). The programs are traced once only if all train
    on one `dataset` with the same step sizes. `on_row` hears every evaluated round: number of the
    run in `configs`, row. Results come in order, as they are ready.
    """
    _check_alike(configs)
    with _precision(configs[0]):
        first = build(configs[0], dataset)
        shared = _Shared(first)

    def one(number: int) -> Result:
        with _precision(configs[number]):
            job = build(configs[number], dataset) if number else first
            show = functools.partial(on_row, number)
            return train(job, evaluate_at=evaluate_at, on_row=show, **shared.parts(job))

    yield one(0)
    with ThreadPoolExecutor(threads or len(cores())) as pool:
        yield from pool.map(one, range(1, len(configs)))


def _precision(config: Config) -> Any:
    return jax.enable_x64(config.run.precision == "float64")


class _Shared:
    """The first run's compiled programs, lent to every run that they fit."""

    def __init__(self, first: Job) -> None:
        self._first = first
        self._engine = Fused(
            first.problem,
            first.clients,
            first.algorithm,
            first.config.run.seed,
            simulated(first.noise, first.config.run.seed),
        )
        self._evaluator = evaluator_over(first.problem, first.clients, first.dataset.held_out)

    def parts(self, job: Job) -> dict[str, Any]:
        """What `train` needs to use them for `job`; empty if it needs programs of its own."""
        if not self._fits(job):
            return {}
        parts: dict[str, Any] = {"runtime": lambda *_: self._engine.twin(job.clients, _[3])}
        if job.noise is not None and job.noise.evaluation is not None:
            return parts  # the noise of evaluations has a seed of its own
        evaluator: Evaluator = self._evaluator.over(job.clients)
        return parts | {"evaluator": evaluator}

    def _fits(self, job: Job) -> bool:
        """The same program: nothing in problem and method depends on who holds which row."""
        one, other = (_seedless(each.config) for each in (self._first, job))
        sizes = [
            each.clients.sizes for each in (self._first, job) if isinstance(each.clients, Rows)
        ]
        plain = not job.config.problem.counts and not job.config.problem.per_client
        chosen = job.config.algorithm  # cohorts and rounding draw by the seed
        seedless = not chosen.cohort and chosen.bits == 32 and job.config.run.runtime == "fused"
        alike = len(set(sizes)) <= 1 and plain and seedless
        alike &= len({_deviations(each) for each in (self._first, job)}) == 1
        return job.dataset is self._first.dataset and one == other and alike


def _deviations(job: Job) -> tuple[float, ...]:
    """The noise's standard deviations: to spend the same, seeds may need different ones."""
    noise = job.noise
    return () if noise is None else (noise.scalar, noise.vector)


def _seedless(config: Config) -> Config:
    return dataclasses.replace(config, run=dataclasses.replace(config.run, seed=0))


def _check_alike(configs: Sequence[Config]) -> None:
    if not configs:
        raise UserError("no runs to train together: give at least one config")
    if any(_seedless(config) != _seedless(configs[0]) for config in configs):
        raise UserError("runs trained together may differ in run.seed only")
    if configs[0].algorithm.rounds == AUTO:
        raise UserError('algorithm.rounds = "auto": runs trained together need a number of rounds')
