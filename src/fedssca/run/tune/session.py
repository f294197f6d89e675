"""One search from a Config to a filled folder; what `fedssca tune` calls.

trials.jsonl         one JSON object a finished trial; the same command again goes on from there
tune.json            all trials, seeds, versions
best-<method>.toml   the complete run with the best settings, on all training rows
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data import Dataset
from fedssca.errors import UserError
from fedssca.run.build import load_dataset
from fedssca.run.config import Config, absolute, render
from fedssca.run.progress import ProgressDisplay
from fedssca.run.record import RunDirectory, versions
from fedssca.run.tune import HELD_OUT, Trial, best, choose_methods, draw, reusable, settled, tune

__all__ = ["tune_into"]

Row = dict[str, Any]


class Folder:
    """The files of a search: finished trials, results, one TOML a method."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self._key, self._files = path, key, RunDirectory(path)
        self._rows = self._read()
        self._new: list[Path] = []

    def _read(self) -> list[Row]:
        rows: list[Row] = []
        try:
            text = (self.path / "trials.jsonl").read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return rows
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror or error}") from error
        for line in text.splitlines():
            with suppress(json.JSONDecodeError):
                rows.append(json.loads(line))
        if any(row.get("key") != self._key for row in rows):
            raise UserError(
                f"{self.path} holds the trials of another config, seed or data: "
                "use another --out for this search"
            )
        return rows

    @property
    def trials(self) -> list[Trial]:
        """All finished trials."""
        return [Trial(**{k: v for k, v in row.items() if k != "key"}) for row in self._rows]

    def create(self) -> None:
        """Make the folder and see that it can be written to."""
        new = [self.path, *self.path.parents]
        self._new = [path for path in new if not os.path.lexists(path)]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot write to {self.path}: {error.strerror or error}; "
                "choose another folder with --out"
            ) from error
        self._save()

    def discard(self) -> None:
        """Leave nothing behind if no trial was finished."""
        if not self._rows:
            for remove in (
                (self.path / "trials.jsonl").unlink,
                *(path.rmdir for path in self._new),
            ):
                with suppress(OSError):
                    remove()

    def add(self, trial: Trial) -> None:
        """One more finished trial; a reader sees the old file or the new one."""
        self._rows.append({"key": self._key, **dataclasses.asdict(trial)})
        self._save()

    def _save(self) -> None:
        self.write("trials.jsonl", "".join(json.dumps(row) + "\n" for row in self._rows))

    def write(self, name: str, text: str) -> None:
        """Put a file in place whole."""
        self._files.write(name, lambda file: file.write(text.encode()))


def tune_into(
    out: Path,
    config: Config,
    methods: Sequence[str] | None,
    trials: int,
    seed: int,
    progress: ProgressDisplay,
    resume: bool = False,
) -> Row:
    """Tune and fill the folder `out`; returns what tune.json holds.

    Finished trials in `out` are used again; those of another config, seed or data are refused.
    """
    config = absolute(config)
    chosen, left_out = choose_methods(config, methods)
    plan = draw(config, chosen, trials, seed)
    if resume and not (out / "trials.jsonl").exists():
        raise UserError(f"--resume: {out} holds no search (no trials.jsonl in it): check the path")
    dataset = load_dataset(config)
    folder = Folder(out, _key(config, dataset, seed))
    known = reusable(plan, folder.trials)
    tell = TrialProgress(progress, plan, known, config.algorithm.rounds)
    for note in left_out:
        progress.note(note)
    try:
        folder.create()
        with _stoppable() as check:

            def keep(trial: Trial) -> None:
                folder.add(trial)
                tell.ended(trial)
                check()

            def show(row: Row) -> None:
                check()
                tell.row(row)

            options: Row = {"dataset": dataset, "earlier": folder.trials, "on_row": show}
            done = tune(config, chosen, trials, seed, keep, **options)
    finally:
        folder.discard()
    winners = best(done)
    for name, trial in winners.items():
        if not trial.diverged:
            folder.write(f"best-{name}.toml", render(settled(config, trial)))
    found = {
        "out": str(out),
        "objective": config.problem.objective,
        "constrained": bool(config.problem.constraint),
        "seed": seed,
        "run_seed": config.run.seed,
        "trials_per_method": trials,
        "held_out": HELD_OUT,
        "left_out": left_out,
        "best": {name: _shown(trial) for name, trial in winners.items()},
        "trials": [_shown(trial) for trial in done],
        "config": render(config),
        "versions": versions(),
    }
    folder.write("tune.json", json.dumps(found, indent=2) + "\n")
    return found


@contextmanager
def _stoppable() -> Iterator[Callable[[], None]]:
    """Ctrl-C counts even where it is swallowed, in a callback of the compiler: see `check`."""
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


def _shown(trial: Trial) -> Row:
    return dataclasses.asdict(trial) | {"feasible": trial.feasible}


def _key(config: Config, dataset: Dataset, seed: int) -> str:
    """What trials must have in common to be compared."""
    digest = hashlib.sha256(f"{render(config)}\n{seed}\n".encode())
    for name, column in sorted(dataset.train.items()):
        digest.update(f"{name} {column.dtype} {column.shape}\n".encode())
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


class TrialProgress:
    """Tells the progress of a search: trials that are done, and the best one of each method."""

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
        """Take a row of the trial that is being trained."""
        self._tell(len(self._seen) + row["round"] / self._last, self._ahead[0])

    def ended(self, trial: Trial) -> None:
        """Take a finished trial."""
        self._ahead.pop(0)
        self._seen.append(trial)
        leader = best(self._seen)[trial.method]
        self._numbers = "diverged" if leader.diverged else f"best {leader.objective:.4g}"
        if leader.violation:
            self._numbers += f", limits broken by {leader.violation:.2g}"
        self._tell(len(self._seen), trial)

    def _tell(self, done: float, trial: Trial) -> None:
        name = f"{trial.method} {trial.number}"
        self._progress.update(done, self._numbers, total=self._total, name=name)
