"""One training of the comparison, complete in itself: an item goes in, a record comes out.

Items know nothing of each other, so they run anywhere and in any order: one after another, or side
by side in processes.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedssca.data import Dataset, Rows
from fedssca.errors import UserError
from fedssca.evaluate.evaluator import Evaluator, evaluator_over
from fedssca.evaluate.traffic import traffic
from fedssca.privacy.noise.gaussian import simulated
from fedssca.run.build import build, engine_of, load_dataset
from fedssca.run.config import Config, parse, render
from fedssca.run.schema import AlgorithmSettings
from fedssca.run.tune import hold_out
from fedssca.studies.reproduce.cache import Cache, fingerprint
from fedssca.system import cores

__all__ = ["Curve", "Item", "looks", "one_by_one", "rounds_to_target", "side_by_side", "work"]

Record = dict[str, Any]
Curve = Sequence[Sequence[float]]
"""(round, accuracy) pairs."""
HOLD = 2
"""A target counts as reached when so many looks in a row are at it."""


class Item(NamedTuple):
    """One training; it can be pickled."""

    label: str
    key: str
    config: str
    """The run, as TOML."""
    cost: float
    """Seconds, roughly."""
    data_seed: int
    """Decides which rows test, where the data do not say so themselves."""
    hold_out: int | None
    """Looked at on training rows held out by this seed; None: on the test rows."""
    stop: float
    """The accuracy at which the training may end."""


Crew = Callable[[Sequence[Item], Cache, Callable[[Item], None]], None]
"""Carries items out: the record of each goes into the cache, then the callback hears of it."""
Progress = Callable[[float, float, str], None]
"""Hears how much is done, of how much, and what was done last."""


def looks(rounds: int) -> list[int]:
    """1, 2, 3, ... and then about 5 % apart, up to the last round."""
    at = [1]
    while at[-1] < rounds:
        at.append(min(rounds, max(at[-1] + 1, round(1.05 * at[-1]))))
    return at


def rounds_to_target(curve: Curve, target: float) -> float | None:
    """When the accuracy first got to the target, if it was still there at the next look.

    Between the look before and that one the accuracy is taken as a straight line.
    """
    for i in range(len(curve) - HOLD + 1):
        if all(accuracy >= target for _, accuracy in curve[i : i + HOLD]):
            (r1, a1), (r0, a0) = curve[i], curve[i - 1] if i else curve[i]
            return float(r1) if a0 == a1 else r0 + (r1 - r0) * (target - a0) / (a1 - a0)
    return None


def work(item: Item) -> Record:
    """Carry one training out: a pure function of the item, but for `seconds`.

    The record: `curve`, how it came to its `end` ("rounds", "reached", "diverged"), `wire` (bytes a
    round: up, down, among clients), `seconds`.
    """
    config, begun = parse(item.config), time.perf_counter()
    with warnings.catch_warnings(), jax.enable_x64(config.run.precision == "float64"):
        warnings.simplefilter("ignore")  # these step sizes break the theorems' conditions
        rows, judge = stage(_plain(config, item.data_seed), item.hold_out)
        job = build(_fitting(config, rows), rows)
        make, seed = engine_of(config), config.run.seed
        engine = make(job.problem, job.clients, job.algorithm, seed, simulated(job.noise, seed))
        state, end = job.algorithm.init(job.problem.start), "rounds"
        curve: list[list[float]] = []
        for at in looks(config.algorithm.rounds):
            state = engine.advance(state, at)
            seen = judge.row(state.w)
            if not math.isfinite(seen["objective"] + seen["norm_sq"]):
                end = "diverged"
                break
            curve.append([at, seen["train_accuracy"]])
            if rounds_to_target(curve[-HOLD:], item.stop) is not None:
                end = "reached"
                break
        wire = list(traffic(job.problem, job.clients, job.algorithm))
    seconds = round(time.perf_counter() - begun, 3)
    return {"curve": curve, "end": end, "wire": wire, "seconds": seconds}


@functools.lru_cache(maxsize=2)
def stage(text: str, held: int | None) -> tuple[Dataset, Evaluator]:
    """The rows that train, those that are looked at (as test rows), and the way to look.

    It is the same for all methods, so a process prepares it once.
    """
    config = parse(text)
    rows = load_dataset(config)
    rows = rows if held is None else hold_out(rows, held)
    return rows, evaluator_over(build(config, rows).problem, Rows.of([rows.test]), None)


def _plain(config: Config, seed: int) -> str:
    """Data, model and problem of a run as TOML."""
    run = dataclasses.replace(config.run, seed=seed)
    return render(dataclasses.replace(config, algorithm=AlgorithmSettings("sgd", batch=1), run=run))


def _fitting(config: Config, rows: Dataset) -> Config:
    """A batch of all the rows of a client stays that when some of them are held out."""
    if config.data.split != "sample":
        return config
    most = len(rows.train["y"]) // config.data.clients
    chosen = dataclasses.replace(config.algorithm, batch=min(config.algorithm.batch, most))
    return dataclasses.replace(config, algorithm=chosen)


def open_cache(folder: Path) -> Cache:
    """The records in `folder` that this version of the code made."""
    text = fingerprint() + inspect.getsource(sys.modules[__name__]) + inspect.getsource(hold_out)
    cache = Cache(folder, hashlib.sha256(text.encode()).hexdigest()[:12])
    cache.create()
    return cache


def store(item: Item, cache: Cache) -> None:
    """Carry an item out and keep its record."""
    cache.put(item.key, work(item), {"entry": item.label, "hold_out": item.hold_out})


def carry_out(items: Sequence[Item], cache: Cache, crew: Crew, progress: Progress) -> float:
    """Do what the cache lacks, the longest first; returns what all of it costs."""
    ahead = sorted((i for i in items if cache.get(i.key) is None), key=lambda i: -i.cost)
    total = math.fsum(i.cost for i in items)
    done = total - math.fsum(i.cost for i in ahead)
    progress(done, total, "")

    def hear(item: Item) -> None:
        nonlocal done
        done += item.cost
        progress(done, total, item.label)

    crew(ahead, cache, hear)
    return total


def record_of(cache: Cache, item: Item) -> Record:
    record = cache.get(item.key)
    if record is None:
        raise UserError(f"{item.label}: its record is gone from {cache.folder}; same command again")
    return record


def one_by_one(items: Sequence[Item], cache: Cache, done: Callable[[Item], None]) -> None:
    """All items, one after another, in this process."""
    for item in items:
        store(item, cache)
        done(item)


def side_by_side(
    items: Sequence[Item], cache: Cache, done: Callable[[Item], None], *, jobs: int = 2
) -> None:
    """All items in `jobs` processes, each with cores of its own.

    On Ctrl-C the trainings under way come to their end and are kept; no others begin.
    """
    if not items:
        return
    context = multiprocessing.get_context("spawn")
    numbers = context.SimpleQueue()
    for number in range(jobs):
        numbers.put(number)
    pool = ProcessPoolExecutor(jobs, context, _settle, (numbers, jobs))
    try:
        ahead = {pool.submit(store, item, cache): item for item in items}
        for future in as_completed(ahead):
            future.result()
            done(ahead[future])
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process ended, for want of memory perhaps: finished trainings are kept; "
            "same command again, with fewer jobs"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _settle(numbers: Any, jobs: int) -> None:
    """A new process: Ctrl-C is its parent's matter, whom it does not outlive; cores are shared."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    number = numbers.get()
    if hasattr(os, "sched_setaffinity"):
        every = cores()
        os.sched_setaffinity(0, every[number % len(every) :: jobs])


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
