"""From names of panels to a folder of figures: plan, work off, draw, judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedssca.errors import UserError
from fedssca.run.record import versions
from fedssca.studies.reproduce.cache import Cache, fingerprint
from fedssca.studies.reproduce.experiment import Experiment, known, read
from fedssca.studies.reproduce.measure import Measured
from fedssca.studies.reproduce.pages import Origin, check_folder, write_index, write_panel
from fedssca.studies.reproduce.plan import Item, keys, located, plan
from fedssca.studies.reproduce.race_run import Progress
from fedssca.studies.reproduce.tuned import families, opinion, race_family, write_race
from fedssca.studies.reproduce.verdict import Opinion
from fedssca.studies.reproduce.workers import work_off
from fedssca.system import cores

__all__ = ["reproduce_into"]

Row = dict[str, Any]
MOST_JOBS = 8
"""Processes by default, at most: each needs about 1 GB with full MNIST."""
RACE_RUNS = 5
"""Runs of each tuned winner, at most."""


def reproduce_into(
    out: Path,
    names: Sequence[str],
    runs: int,
    console: Console,
    *,
    jobs: int | None = None,
    cache: Path | None = None,
    data: Path | None = None,
    resume: bool = False,
    trials: int = 0,
) -> list[Row]:
    """Draw and judge the named panels in the folder `out`; returns what each NAME.json holds.

    Finished runs are kept in `cache` (default: a folder in `out`) and used again, by other panels
    too. A panel is written as soon as its runs are there. With `trials` every method is also tuned
    with so many of them, and statements about speed are judged again.
    """
    for option, number in (("--runs", runs), ("--jobs", 1 if jobs is None else jobs)):
        if number < 1:
            raise UserError(f"{option} {number}: it must be at least 1")
    crew = jobs or min(len(cores()), MOST_JOBS)
    panels = [located(panel, data) for panel in chosen(names)]
    store = Cache(cache or out / "cache", fingerprint())
    wanted = {p.name: {c.label: keys(c, runs) for c in p.curves} for p in panels}
    every = {key for named in wanted.values() for seeds in named.values() for key in seeds}
    if resume and not any(store.get(key) for key in every):
        old = store.outdated(every)
        why = f"only {old} of another version of the code: leave out --resume" if old else ""
        raise UserError(
            f"--resume: {store.folder} holds no run of these figures{why and ', '}"
            f"{why or ': check the path'}"
        )
    store.create()
    check_folder(out)
    items = plan(panels, runs, store)
    if count := store.outdated(every):
        note = f"{count} cached runs are of another version of the code: computed again"
        console.print(f"[yellow]note:[/] {note}", highlight=False)
    ahead = {key for item in items for key in item.keys}
    written: dict[str, Row] = {}
    opinions: dict[str, Opinion] = {}
    options = f"--runs {runs}" + (f" --tuned --trials {trials}" if trials else "")

    def write_ready() -> None:
        for panel in panels:
            named = wanted[panel.name]
            if panel.name in written or any(ahead.intersection(seeds) for seeds in named.values()):
                continue
            found = {c.label: Measured(c, _load(store, named[c.label])) for c in panel.curves}
            command = f"fedssca reproduce {panel.source} {options}"
            origin = Origin(command, list(range(runs)), versions(), store.code)
            again = opinions.get(panel.curves[0].config.data.split)
            written[panel.name] = write_panel(out, panel, found, origin, again)
            write_index(out)

    def done(item: Item) -> None:
        ahead.difference_update(item.keys)
        write_ready()

    write_ready()
    if items:
        with Screen(console, items, len(every)) as screen:
            work_off(items, store, crew, screen.show, done)
    races: list[Row] = []
    for split, curves in families(panels).items() if trials else ():
        with _racing(console, split) as progress:
            outcomes = race_family(
                curves, store.folder, trials, min(runs, RACE_RUNS), crew, progress
            )
        command = f"fedssca reproduce {' '.join(names)} {options}"
        origin = Origin(command, list(range(runs)), versions(), store.code)
        races.append(write_race(out, split, outcomes, origin))
        opinions[split] = opinion(outcomes)
    if races:
        written.clear()
        write_ready()
    return [*(written[panel.name] for panel in panels), *races]


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The panels of these names, each once; "all" stands for all of them."""
    spelled = dict.fromkeys(n for name in names for n in (known() if name == "all" else [name]))
    panels = [read(name) for name in spelled]
    for panel in panels:
        if sum(other.name == panel.name for other in panels) > 1:
            raise UserError(f"two of the figures are named {panel.name!r}: rename one of the files")
    return panels


def _load(store: Cache, named: Sequence[str]) -> list[Row]:
    runs = [store.get(key) for key in named]
    if None in runs:
        raise UserError(f"runs vanished from {store.folder} meanwhile: same command again")
    return [run for run in runs if run is not None]


@contextmanager
def _racing(console: Console, split: str) -> Iterator[Progress]:
    """A bar for a race, in estimated seconds of work."""
    with _bar(console) as bar:
        task = bar.add_task(f"tuning, {split}-based", total=None, label="starting")

        def tell(done: float, total: float, label: str) -> None:
            bar.update(task, completed=done, total=total, label=label)

        yield tell


def _bar(console: Console) -> Bar:
    return Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[label]}", markup=False),
        TimeRemainingColumn(),
        console=console,
        speed_estimate_period=900,
    )


class Screen:
    """One bar over the whole plan, in estimated seconds of work."""

    def __init__(self, console: Console, items: Sequence[Item], runs: int) -> None:
        self._shares = dict.fromkeys((item.keys for item in items), 0.0)
        self._costs = {item.keys: item.cost for item in items}
        self._runs, self._known = runs, runs - sum(len(item.keys) for item in items)
        self._bar = _bar(console)
        total = sum(self._costs.values())
        self._task = self._bar.add_task(self._counted(), total=total, label="starting")

    def show(self, item: Item, share: float) -> None:
        """A share of an item is done."""
        self._shares[item.keys] = share
        done = sum(self._costs[keys] * share for keys, share in self._shares.items())
        self._bar.update(
            self._task, completed=done, description=self._counted(), label=item.label[:32]
        )

    def _counted(self) -> str:
        done = sum(int(share * len(keys) + 1e-9) for keys, share in self._shares.items())
        return f"{self._known + done} of {self._runs} runs"

    def __enter__(self) -> Screen:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        self._bar.stop()
