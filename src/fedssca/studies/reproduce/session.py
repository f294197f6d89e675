"""From the names of panels to a folder of figures: plan, carry out, draw, check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedssca.errors import UserError
from fedssca.run.versions import versions
from fedssca.studies.reproduce.cache import Cache, fingerprint
from fedssca.studies.reproduce.experiment import Experiment, known, read
from fedssca.studies.reproduce.measure import Measured
from fedssca.studies.reproduce.pages import Origin, check_folder, write_index, write_panel
from fedssca.studies.reproduce.plan import PlannedRuns, keys, located, plan
from fedssca.studies.reproduce.tuned.statements import (
    compare_family,
    families,
    tuned_check,
    write_comparison,
)
from fedssca.studies.reproduce.tuned.training import Progress
from fedssca.studies.reproduce.verdict import SecondCheck
from fedssca.studies.reproduce.workers import run_all
from fedssca.system import cores

__all__ = ["reproduce_into"]

Row = dict[str, Any]
MOST_JOBS = 8
"""The largest default number of processes; each needs about 1 GB with full MNIST."""
TUNED_RUNS = 5
"""The largest number of runs with the best settings of each tuned method."""


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
    """Draw and check the named panels in the folder `out`; return the content of each NAME.json.

    Finished runs are kept in `cache` (default: a folder in `out`) and are used by all panels. A
    panel is written as soon as its runs are finished. With `trials` every method is also tuned
    with that many trials, and statements about speed are checked again.
    """
    for option, number in (("--runs", runs), ("--jobs", 1 if jobs is None else jobs)):
        if number < 1:
            raise UserError(f"{option} {number}: it must be at least 1")
    processes = jobs or min(len(cores()), MOST_JOBS)
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
    checks: dict[str, SecondCheck] = {}
    options = f"--runs {runs}" + (f" --tuned --trials {trials}" if trials else "")

    def write_ready() -> None:
        for panel in panels:
            named = wanted[panel.name]
            if panel.name in written or any(ahead.intersection(seeds) for seeds in named.values()):
                continue
            found = {c.label: Measured(c, _load(store, named[c.label])) for c in panel.curves}
            command = f"fedssca reproduce {panel.source} {options}"
            origin = Origin(command, list(range(runs)), versions(), store.code)
            check = checks.get(panel.curves[0].config.data.split)
            written[panel.name] = write_panel(out, panel, found, origin, check)
            write_index(out)

    def done(item: PlannedRuns) -> None:
        ahead.difference_update(item.keys)
        write_ready()

    write_ready()
    if items:
        with RunsProgress(console, items, len(every)) as screen:
            run_all(items, store, processes, screen.show, done)
    comparisons: list[Row] = []
    for split, curves in families(panels).items() if trials else ():
        with _comparison_progress(console, split) as progress:
            outcomes = compare_family(
                curves, store.folder, trials, min(runs, TUNED_RUNS), processes, progress
            )
        command = f"fedssca reproduce {' '.join(names)} {options}"
        origin = Origin(command, list(range(runs)), versions(), store.code)
        comparisons.append(write_comparison(out, split, outcomes, origin))
        checks[split] = tuned_check(outcomes)
    if comparisons:
        written.clear()
        write_ready()
    return [*(written[panel.name] for panel in panels), *comparisons]


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Return the panels of these names, each once; "all" means all of them."""
    spelled = dict.fromkeys(n for name in names for n in (known() if name == "all" else [name]))
    panels = [read(name) for name in spelled]
    for panel in panels:
        if sum(other.name == panel.name for other in panels) > 1:
            raise UserError(f"two of the figures are named {panel.name!r}: rename one of the files")
    return panels


def _load(store: Cache, named: Sequence[str]) -> list[Row]:
    runs = [store.get(key) for key in named]
    if None in runs:
        raise UserError(f"runs have vanished from {store.folder}: run the same command again")
    return [run for run in runs if run is not None]


@contextmanager
def _comparison_progress(console: Console, split: str) -> Iterator[Progress]:
    """A progress bar for a tuned comparison, in estimated seconds of work."""
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


class RunsProgress:
    """A progress bar over the whole plan, in estimated seconds of work."""

    def __init__(self, console: Console, items: Sequence[PlannedRuns], runs: int) -> None:
        self._shares = dict.fromkeys((item.keys for item in items), 0.0)
        self._costs = {item.keys: item.cost for item in items}
        self._runs, self._known = runs, runs - sum(len(item.keys) for item in items)
        self._bar = _bar(console)
        total = sum(self._costs.values())
        self._task = self._bar.add_task(self._counted(), total=total, label="starting")

    def show(self, item: PlannedRuns, share: float) -> None:
        """Show that a fraction of an item is done."""
        self._shares[item.keys] = share
        done = sum(self._costs[keys] * share for keys, share in self._shares.items())
        self._bar.update(
            self._task, completed=done, description=self._counted(), label=item.label[:32]
        )

    def _counted(self) -> str:
        done = sum(int(share * len(keys) + 1e-9) for keys, share in self._shares.items())
        return f"{self._known + done} of {self._runs} runs"

    def __enter__(self) -> RunsProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the bar from the terminal."""
        self._bar.stop()
