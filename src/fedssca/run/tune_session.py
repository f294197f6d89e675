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
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedssca.data import Dataset
from fedssca.errors import UserError
from fedssca.run.build import load_dataset
from fedssca.run.config import Config, absolute, render
from fedssca.run.record import RunDirectory, versions
from fedssca.run.tune import HELD_OUT, Trial, best, choose_methods, draw, reusable, settled, tune

__all__ = ["print_search", "tune_into"]

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
    console: Console,
    resume: bool = False,
) -> Row:
    """Tune with a progress bar and fill the folder `out`; returns what tune.json holds.

    Finished trials in `out` are used again; those of another config, seed or data are refused.
    """
    config = absolute(config)
    chosen, left_out = choose_methods(config, methods)
    plan = draw(config, chosen, trials, seed)
    if resume and not (out / "trials.jsonl").exists():
        raise UserError(f"--resume: {out} holds no search (no trials.jsonl in it): check the path")
    dataset = load_dataset(config)
    folder = Folder(out, _key(config, dataset, seed))
    screen = Screen(console, plan, reusable(plan, folder.trials), config.algorithm.rounds, left_out)

    try:
        folder.create()
        with _stoppable() as check:

            def keep(trial: Trial) -> None:
                folder.add(trial)
                screen.ended(trial)
                check()

            def show(row: Row) -> None:
                check()
                screen.row(row)

            options: Row = {"dataset": dataset, "earlier": folder.trials, "on_row": show}
            done = tune(config, chosen, trials, seed, keep, **options)
    finally:
        screen.stop()
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


class Screen:
    """Progress over the whole plan, with the time that is left."""

    def __init__(
        self,
        console: Console,
        plan: Sequence[Trial],
        known: dict[tuple[str, int], Trial],
        rounds: int,
        notes: Sequence[str],
    ) -> None:
        self._console, self._notes = console, notes
        self._ahead = [t for t in plan if (t.method, t.number) not in known]
        self._seen = list(known.values())
        self._last = max(rounds - 1, 1)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._task = self._bar.add_task("", total=len(plan), completed=len(known), numbers="")
        self._status = console.status("preparing the first trial")
        self._status.start()

    def row(self, row: Row) -> None:
        """A trial is under way; the first sign of life brings notes and bar: bad input is over."""
        if not self._bar.live.is_started:
            self._status.stop()
            for note in self._notes:
                self._console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
            self._bar.start()
        now = self._ahead[0]
        self._bar.update(
            self._task,
            completed=len(self._seen) + row["round"] / self._last,
            description=f"{now.method} {now.number}",
        )

    def ended(self, trial: Trial) -> None:
        """A trial is finished."""
        self._ahead.pop(0)
        self._seen.append(trial)
        leader = best(self._seen)[trial.method]
        numbers = "diverged" if leader.diverged else f"best {leader.objective:.4g}"
        if leader.violation:
            numbers += f", limits broken by {leader.violation:.2g}"
        self._bar.update(self._task, completed=len(self._seen), numbers=numbers)

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self._status.stop()
        if self._bar.live.is_started:
            self._bar.stop()


def print_search(found: Row) -> None:
    """The best trial of every method in 80 columns, and where the files are."""
    limits, norm = found["constrained"], found["objective"] == "norm"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("method", no_wrap=True)
    for heading in ("trials", "kept", "|w|²" if norm else "val. cost", "val. acc."):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("settings", overflow="fold")
    for name, trial in found["best"].items():
        settings = " ".join(f"{k.split('.', 1)[1]}={v:g}" for k, v in trial["settings"].items())
        ended = not trial["diverged"]
        miss = trial["violation"] or 0.0
        kept = "[green]yes[/]" if trial["feasible"] else f"[red]NO[/], by {miss:.2g}"
        table.add_row(
            name,
            str(found["trials_per_method"]),
            kept if limits and ended else "-",
            f"{trial['objective']:.4g}" if ended else "[red]diverged[/]",
            f"{trial['validation_accuracy']:.2%}" if ended else "-",
            settings or "automatic",
        )
    console = Console(highlight=False)
    console.print(table)
    lost = dict.fromkeys(found["best"], 0)
    for trial in found["trials"]:
        lost[trial["method"]] += bool(trial["diverged"])
    if any(lost.values()):
        counts = ", ".join(f"{name} {count}" for name, count in lost.items() if count)
        console.print(f"diverged trials: {counts}", soft_wrap=True)
    out = escape(found["out"])
    console.print(f"saved in {out}; go on with: fedssca run {out}/best-METHOD.toml", soft_wrap=True)
