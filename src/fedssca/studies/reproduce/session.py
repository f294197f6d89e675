"""From the names of panels to a folder of figures: plan, carry out, draw, check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedssca.errors import UserError
from fedssca.run.progress import ProgressDisplay
from fedssca.run.versions import versions
from fedssca.studies.reproduce.cache import Cache, fingerprint
from fedssca.studies.reproduce.experiment import Experiment, known, read
from fedssca.studies.reproduce.measure import Measured
from fedssca.studies.reproduce.pages import (
    Origin,
    check_folder,
    renew_panel,
    write_index,
    write_panel,
)
from fedssca.studies.reproduce.plan import PlannedRuns, keys, located, plan
from fedssca.studies.reproduce.tuned.comparison import Outcome
from fedssca.studies.reproduce.tuned.limit_pages import write_limit_comparison
from fedssca.studies.reproduce.tuned.limits import LimitOutcome
from fedssca.studies.reproduce.tuned.statements import (
    compare_family,
    compare_limited_family,
    families,
    limited_families,
    stored_comparisons,
    tuned_check,
    write_comparison,
)
from fedssca.studies.reproduce.tuned.training import open_cache
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
    progress: ProgressDisplay,
    *,
    jobs: int | None = None,
    cache: Path | None = None,
    data: Path | None = None,
    resume: bool = False,
    trials: int = 0,
    train: bool = True,
) -> list[Row]:
    """Draw and check the named panels in the folder `out`; return the content of each NAME.json.

    Finished runs are kept in `cache` (default: a folder in `out`) and are used by all panels. A
    panel is written as soon as its runs are finished. With `trials` every method is also tuned
    with that many trials, and statements about speed are checked again. Without `train` only what
    is in the cache is drawn; the files of other panels stay, but for how far their runs agree with
    those that the cache has.
    """
    if trials and not train:
        raise UserError("--cached trains nothing, --tuned does: leave out one of them")
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
        progress.note(f"{count} cached runs are of another version of the code: computed again")
    ahead = {key for item in items for key in item.keys}
    written: dict[str, Row] = {}
    compared = stored_comparisons(out)
    checks = {split: tuned_check(outcomes) for split, outcomes in compared.items()}

    def write_ready() -> None:
        for panel in panels:
            named = wanted[panel.name]
            if panel.name in written or any(ahead.intersection(seeds) for seeds in named.values()):
                continue
            found = {c.label: Measured(c, _load(store, named[c.label])) for c in panel.curves}
            check = checks.get(panel.curves[0].config.data.split)
            command = f"fedssca reproduce {panel.source} --runs {runs}"
            made = store.made(key for seeds in named.values() for key in seeds)
            origin = Origin(command, list(range(runs)), versions(), store.code, *made)
            written[panel.name] = write_panel(out, panel, found, origin, check)
            write_index(out)

    def done(item: PlannedRuns) -> None:
        ahead.difference_update(item.keys)
        write_ready()

    write_ready()
    if not train:
        left = [panel for panel in panels if panel.name not in written]
        renewed = [_renew(out, panel, wanted[panel.name], store, progress) for panel in left]
        write_index(out)
        return [*written.values(), *(about for about in renewed if about)]
    if items:
        run_all(items, store, processes, RunsProgress(progress, items, len(every)).show, done)
    comparisons: list[Row] = []
    if trials:
        tuned = open_cache(store.folder)
        command = f"fedssca reproduce {' '.join(names)} --runs {runs} --tuned --trials {trials}"
        budget = (trials, min(runs, TUNED_RUNS), processes)

        def origin_of(outcomes: Sequence[Outcome | LimitOutcome]) -> Origin:
            seeds = sorted({seed for outcome in outcomes for seed in outcome.seeds})
            return Origin(command, seeds, versions(), tuned.code, *tuned.made())

        for split, curves in families(panels).items():
            tell = _comparison_progress(progress, split)
            outcomes = compare_family(curves, tuned, *budget, tell)
            comparisons.append(write_comparison(out, split, outcomes, origin_of(outcomes)))
            checks[split] = tuned_check(outcomes)
        for split, curves in limited_families(panels).items():
            tell = _comparison_progress(progress, f"{split}, limit")
            ends = compare_limited_family(curves, tuned, *budget, tell)
            comparisons.append(write_limit_comparison(out, split, ends, origin_of(ends)))
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


def _renew(
    out: Path,
    panel: Experiment,
    wanted: Mapping[str, Sequence[str]],
    store: Cache,
    progress: ProgressDisplay,
) -> Row | None:
    """Compare a page with the runs of a panel that are in the cache; return its NAME.json."""
    found = {}
    for curve in panel.curves:
        runs = [store.get(key) for key in wanted[curve.label]]
        there = runs[: runs.index(None)] if None in runs else runs
        found[curve.label] = Measured(curve, [run for run in there if run is not None])
    have, all_runs = (
        sum(map(len, each)) for each in ([m.runs for m in found.values()], wanted.values())
    )
    progress.note(f"{panel.name} is left as it is: {have} of its {all_runs} runs are in the cache")
    return renew_panel(out, panel.name, found, store.code)


def _comparison_progress(
    progress: ProgressDisplay, split: str
) -> Callable[[float, float, str], None]:
    """Return a function that tells the progress of a tuned comparison, in seconds of work."""

    def tell(done: float, total: float, label: str) -> None:
        progress.update(done, label, total=total, name=f"tuning, {split}-based")

    return tell


class RunsProgress:
    """Tells the progress over the whole plan, in estimated seconds of work."""

    def __init__(self, progress: ProgressDisplay, items: Sequence[PlannedRuns], runs: int) -> None:
        self._progress = progress
        self._shares = dict.fromkeys((item.keys for item in items), 0.0)
        self._costs = {item.keys: item.cost for item in items}
        self._runs, self._known = runs, runs - sum(len(item.keys) for item in items)
        self._tell("starting")

    def show(self, item: PlannedRuns, share: float) -> None:
        """Show that a fraction of an item is done."""
        self._shares[item.keys] = share
        self._tell(item.label[:32])

    def _tell(self, label: str) -> None:
        work = sum(self._costs[keys] * share for keys, share in self._shares.items())
        finished = sum(int(share * len(keys) + 1e-9) for keys, share in self._shares.items())
        counted = f"{self._known + finished} of {self._runs} runs"
        self._progress.update(work, label, total=sum(self._costs.values()), name=counted)
