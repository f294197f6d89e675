"""One training of the tuned comparison, and how many of them are carried out.

A training is described completely by its `Training`, so trainings can run in any order, in sequence
or in parallel processes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedssca.data import Dataset, Rows
from fedssca.errors import Diverged, UserError
from fedssca.evaluate.evaluator import Evaluator, evaluator_over
from fedssca.evaluate.traffic import traffic_in
from fedssca.privacy.noise.messages import simulated
from fedssca.run.build import build, engine_of, load_dataset
from fedssca.run.config import Config, parse, render
from fedssca.run.execute import train as train_job
from fedssca.run.schema import AlgorithmSettings
from fedssca.run.tune.validation import hold_out
from fedssca.studies.reproduce.cache import Cache, fingerprint
from fedssca.system import cores

__all__ = [
    "Curve",
    "Training",
    "evaluation_rounds",
    "in_processes",
    "in_sequence",
    "rounds_to_target",
    "train",
]

Record = dict[str, Any]
Curve = Sequence[Sequence[float]]
"""Pairs of a round and the accuracy at it."""
HOLD = 2
"""A target counts as reached if this many successive evaluations reach it."""


class Training(NamedTuple):
    """The complete description of one training; it can be pickled."""

    label: str
    key: str
    config: str
    """The run configuration as TOML."""
    cost: float
    """The estimated number of seconds."""
    data_seed: int
    """The seed that selects the test rows, if the data set has none of its own."""
    hold_out: int | None
    """The seed of the training rows held out for evaluation; None evaluates on the test rows."""
    stop: float
    """The accuracy at which the training may end; 0 records only the end, not the way there."""


Executor = Callable[[Sequence[Training], Cache, Callable[[Training], None]], None]
"""Carries out trainings: it stores the record of each in the cache, then calls the callback."""
Progress = Callable[[float, float, str], None]
"""A function that is called with the cost done, the total cost, and the last label."""


def evaluation_rounds(rounds: int) -> list[int]:
    """Return the rounds 1, 2, 3, ..., then about 5 % apart, up to the last round."""
    at = [1]
    while at[-1] < rounds:
        at.append(min(rounds, max(at[-1] + 1, round(1.05 * at[-1]))))
    return at


def rounds_to_target(curve: Curve, target: float) -> float | None:
    """Return when the accuracy first reached the target and kept it at the next evaluation.

    Between two evaluations the accuracy is interpolated linearly.
    """
    for i in range(len(curve) - HOLD + 1):
        if all(accuracy >= target for _, accuracy in curve[i : i + HOLD]):
            (r1, a1), (r0, a0) = curve[i], curve[i - 1] if i else curve[i]
            return float(r1) if a0 == a1 else r0 + (r1 - r0) * (target - a0) / (a1 - a0)
    return None


def train(training: Training) -> Record:
    """Carry out one training; apart from `seconds` the record depends only on the training.

    Without a `stop` it is that of `train_to_end`. Otherwise it holds `curve`, `end` (why it ended:
    "rounds", "reached" or "diverged"), `wire` (bytes per round after the first: up, down, between
    clients) and `seconds`.
    """
    if not training.stop:
        return train_to_end(training)
    config, begun = parse(training.config), time.perf_counter()
    with warnings.catch_warnings(), jax.enable_x64(config.run.precision == "float64"):
        warnings.simplefilter("ignore")  # These step sizes violate conditions of the theorems.
        rows, measure = prepare(_base_run(config, training.data_seed), training.hold_out)
        job = build(_with_fitting_batch(config, rows), rows)
        make, seed = engine_of(config), config.run.seed
        engine = make(job.problem, job.clients, job.algorithm, seed, simulated(job.noise, seed))
        state, end = job.algorithm.init(job.problem.start), "rounds"
        curve: list[list[float]] = []
        for at in evaluation_rounds(config.algorithm.most_rounds):
            state = engine.advance(state, at)
            seen = measure.row(state.w)
            if not math.isfinite(seen["objective"] + seen["norm_sq"]):
                end = "diverged"
                break
            curve.append([at, seen["train_accuracy"]])
            if rounds_to_target(curve[-HOLD:], training.stop) is not None:
                end = "reached"
                break
        sent = traffic_in(job.problem, job.clients, job.algorithm)
        wire = [two - one for two, one in zip(sent(2), sent(1), strict=True)]
    seconds = round(time.perf_counter() - begun, 3)
    return {"curve": curve, "end": end, "wire": wire, "seconds": seconds}


def train_to_end(training: Training) -> Record:
    """Carry out one training with limits and record its model: the numbers of a trial.

    `violation` and `cost` are on the rows that trained, `accuracy` on the rows for evaluation.
    """
    config, begun = parse(training.config), time.perf_counter()
    found: Record = {"end": "diverged", "violation": None, "objective": None}
    with warnings.catch_warnings(), jax.enable_x64(config.run.precision == "float64"):
        warnings.simplefilter("ignore")
        rows = rows_of(_base_run(config, training.data_seed), training.hold_out)
        with suppress(Diverged):
            result = train_job(build(_with_fitting_batch(config, rows), rows))
            if not result.diverged:
                final = result.final
                found = {
                    "end": "rounds",
                    "violation": max(0.0, *final["constraints"]),
                    "objective": final["objective"],
                    "cost": final["train_cost"],
                    "accuracy": final["test_accuracy"],
                }
    return found | {"seconds": round(time.perf_counter() - begun, 3)}


@functools.lru_cache(maxsize=2)
def rows_of(text: str, held: int | None) -> Dataset:
    """Return the data, with the rows for evaluation as test rows."""
    rows = load_dataset(parse(text))
    return rows if held is None else hold_out(rows, held)


@functools.lru_cache(maxsize=2)
def prepare(text: str, held: int | None) -> tuple[Dataset, Evaluator]:
    """Return the data, with the rows for evaluation as test rows, and the evaluator.

    They are the same for all methods, so a process prepares them once.
    """
    config, rows = parse(text), rows_of(text, held)
    return rows, evaluator_over(build(config, rows).problem, Rows.of([rows.test]), None)


def _base_run(config: Config, seed: int) -> str:
    """Return the data, model and problem of a run as TOML."""
    run = dataclasses.replace(config.run, seed=seed)
    plain = AlgorithmSettings("ssca" if config.problem.limited else "sgd", batch=1)
    return render(dataclasses.replace(config, algorithm=plain, run=run))


def _with_fitting_batch(config: Config, rows: Dataset) -> Config:
    """Return the run with a batch of at most all rows of a client after holding some out."""
    if config.data.split != "sample":
        return config
    most = len(rows.train["y"]) // config.data.clients
    chosen = dataclasses.replace(config.algorithm, batch=min(config.algorithm.batch, most))
    return dataclasses.replace(config, algorithm=chosen)


def open_cache(folder: Path) -> Cache:
    """Return the cache of the records in `folder` of this version of the code."""
    cache = Cache(folder, fingerprint(__name__))
    cache.create()
    return cache


def store(training: Training, cache: Cache) -> None:
    """Carry out a training and store its record."""
    cache.put(
        training.key, train(training), {"entry": training.label, "hold_out": training.hold_out}
    )


def train_missing(
    trainings: Sequence[Training], cache: Cache, executor: Executor, progress: Progress
) -> float:
    """Carry out what the cache lacks, the longest first; return the total cost."""
    ahead = sorted((i for i in trainings if cache.get(i.key) is None), key=lambda i: -i.cost)
    total = math.fsum(i.cost for i in trainings)
    done = total - math.fsum(i.cost for i in ahead)
    progress(done, total, "")

    def on_done(training: Training) -> None:
        nonlocal done
        done += training.cost
        progress(done, total, training.label)

    executor(ahead, cache, on_done)
    return total


def stored_record(cache: Cache, training: Training) -> Record:
    record = cache.get(training.key)
    if record is None:
        raise UserError(
            f"{training.label}: its record is gone from {cache.folder}: run the same command again"
        )
    return record


def in_sequence(
    trainings: Sequence[Training], cache: Cache, done: Callable[[Training], None]
) -> None:
    """Carry out all trainings one after another in this process."""
    for training in trainings:
        store(training, cache)
        done(training)


def in_processes(
    trainings: Sequence[Training], cache: Cache, done: Callable[[Training], None], *, jobs: int = 2
) -> None:
    """Carry out all trainings in `jobs` processes, each with its own cores.

    After Ctrl-C the running trainings are completed and stored, and no others start.
    """
    if not trainings:
        return
    context = multiprocessing.get_context("spawn")
    numbers = context.SimpleQueue()
    for number in range(jobs):
        numbers.put(number)
    pool = ProcessPoolExecutor(jobs, context, _start_worker, (numbers, jobs))
    try:
        ahead = {pool.submit(store, training, cache): training for training in trainings}
        for future in as_completed(ahead):
            future.result()
            done(ahead[future])
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process ended, perhaps for lack of memory. Finished trainings are kept: run "
            "the same command again with fewer jobs"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(numbers: Any, jobs: int) -> None:
    """Set up a process: it ignores Ctrl-C, ends with its parent, and uses its own cores."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    number = numbers.get()
    if hasattr(os, "sched_setaffinity"):
        every = cores()
        os.sched_setaffinity(0, every[number % len(every) :: jobs])


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
