"""A search from a configuration to a filled folder, which `fedssca tune` calls."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data import Dataset
from fedssca.errors import ConfigError, UserError
from fedssca.run.build import load_dataset
from fedssca.run.config import Config, absolute, render
from fedssca.run.progress import ProgressDisplay
from fedssca.run.schema import AUTO
from fedssca.run.tune.folder import SearchFolder
from fedssca.run.tune.search import plan, tune
from fedssca.run.tune.space import choose_methods
from fedssca.run.tune.trial import Trial, best, reusable, with_settings
from fedssca.run.tune.validation import HELD_OUT
from fedssca.run.versions import versions

__all__ = ["tune_into"]

Row = dict[str, Any]


def tune_into(
    out: Path,
    config: Config,
    methods: Sequence[str] | None,
    trials: int,
    seed: int,
    progress: ProgressDisplay,
    resume: bool = False,
) -> Row:
    """Tune and fill the folder `out`; return the content of tune.json.

    Finished trials in `out` are used again; those of another config, seed or data are refused.
    """
    if config.algorithm.rounds == AUTO:
        raise ConfigError(
            "algorithm.rounds",
            'algorithm.rounds = "auto": tuning gives every trial the same rounds; set a number',
        )
    config = absolute(config)
    chosen, left_out = choose_methods(config, methods)
    planned = plan(config, chosen, trials, seed)
    if resume and not (out / "trials.jsonl").exists():
        raise UserError(f"--resume: {out} holds no search (no trials.jsonl in it): check the path")
    dataset = load_dataset(config)
    folder = SearchFolder(out, _key(config, dataset, seed))
    known = reusable(planned, folder.trials)
    shown = TrialProgress(progress, planned, known, config.algorithm.most_rounds)
    for note in left_out:
        progress.note(note)
    try:
        folder.create()
        with _interruptible() as check:

            def keep(trial: Trial) -> None:
                folder.add(trial)
                shown.ended(trial)
                check()

            def show(row: Row) -> None:
                check()
                shown.row(row)

            options: Row = {"dataset": dataset, "earlier": folder.trials, "on_row": show}
            done = tune(config, chosen, trials, seed, keep, **options)
    finally:
        folder.discard()
    winners = best(done)
    for name, trial in winners.items():
        if not trial.diverged:
            folder.write(
                f"best-{name.replace(':', '.')}.toml", render(with_settings(config, trial))
            )
    found = {
        "out": str(out),
        "objective": config.problem.objective,
        "constrained": config.problem.limited,
        "seed": seed,
        "run_seed": config.run.seed,
        "trials_per_method": trials,
        "held_out": HELD_OUT,
        "left_out": left_out,
        "best": {name: _as_row(trial) for name, trial in winners.items()},
        "trials": [_as_row(trial) for trial in done],
        "config": render(config),
        "versions": versions(),
    }
    folder.write("tune.json", json.dumps(found, indent=2) + "\n")
    return found


@contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt if Ctrl-C was pressed.

    A callback of the compiler can swallow the exception that Ctrl-C raises.
    """
    pressed = False

    def press(*_: object) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def _as_row(trial: Trial) -> Row:
    return dataclasses.asdict(trial) | {"feasible": trial.feasible}


def _key(config: Config, dataset: Dataset, seed: int) -> str:
    """Return a digest of what trials must have in common to be compared."""
    digest = hashlib.sha256(f"{render(config)}\n{seed}\n".encode())
    for name, column in sorted(dataset.train.items()):
        digest.update(f"{name} {column.dtype} {column.shape}\n".encode())
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


class TrialProgress:
    """Shows the progress of a search: finished trials, and the best one of each method."""

    def __init__(
        self,
        progress: ProgressDisplay,
        plan: Sequence[Trial],
        known: dict[tuple[str, int], Trial],
        rounds: int,
    ) -> None:
        self._progress, self._total, self._numbers = progress, len(plan), ""
        self._ahead = [t for t in plan if (t.method, t.number) not in known]
        self._seen = list(known.values())
        self._last = max(rounds - 1, 1)

    def row(self, row: Row) -> None:
        """Show a row of the trial that is being trained."""
        self._update(len(self._seen) + row["round"] / self._last, self._ahead[0])

    def ended(self, trial: Trial) -> None:
        """Show a finished trial."""
        self._ahead.pop(0)
        self._seen.append(trial)
        leader = best(self._seen)[trial.method]
        self._numbers = "diverged" if leader.diverged else f"best {leader.objective:.4g}"
        if leader.violation:
            self._numbers += f", limits broken by {leader.violation:.2g}"
        self._update(len(self._seen), trial)

    def _update(self, done: float, trial: Trial) -> None:
        name = f"{trial.method} {trial.number}"
        self._progress.update(done, self._numbers, total=self._total, name=name)
