"""Checks the paper's statements about speed with methods that are all tuned alike.

There is one comparison for each way to split the data: all methods, with every (B, E) of the
curves. A statement about which method is faster is checked again by the rounds that the tuned
methods need to reach each of the accuracies `comparison.TARGETS`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from fedssca.studies.reproduce.cache import Cache
from fedssca.studies.reproduce.experiment import Curve, Experiment, Statement
from fedssca.studies.reproduce.measure import Measured
from fedssca.studies.reproduce.pages import Origin, origin_line, read_about
from fedssca.studies.reproduce.plan import data_mark
from fedssca.studies.reproduce.tuned.comparison import TARGETS, Entry, Outcome, compare
from fedssca.studies.reproduce.tuned.files import page_of, write_files
from fedssca.studies.reproduce.tuned.limits import METHODS as LIMITED_METHODS
from fedssca.studies.reproduce.tuned.limits import LimitEntry, LimitOutcome, compare_with_limit
from fedssca.studies.reproduce.tuned.table import draw, table, verdict
from fedssca.studies.reproduce.tuned.training import Progress, in_processes
from fedssca.studies.reproduce.verdict import Finding, SecondCheck

__all__ = [
    "METHODS",
    "compare_family",
    "compare_limited_family",
    "comparison_page",
    "families",
    "limited_families",
    "stored_comparisons",
    "tuned_check",
    "write_comparison",
]

METHODS = ("ssca", "sgd", "momentum")
Row = dict[str, Any]


def families(panels: Sequence[Experiment]) -> dict[str, list[Curve]]:
    """Return the curves without constraints by their split of the data, "sample" or "feature"."""
    out: dict[str, list[Curve]] = {}
    for panel in panels:
        for curve in panel.curves if panel.kind in ("trajectory", "tradeoff") else ():
            if not curve.config.problem.constraint and curve.config.algorithm.name in METHODS:
                out.setdefault(curve.config.data.split, []).append(curve)
    return out


def limited_families(panels: Sequence[Experiment]) -> dict[str, list[Curve]]:
    """Return the curves over rounds with one limit and the norm as objective, by their split."""
    out: dict[str, list[Curve]] = {}
    for panel in panels:
        for curve in panel.curves if panel.kind == "trajectory" else ():
            problem = curve.config.problem
            if len(problem.constraint) == 1 and problem.objective == "norm":
                out.setdefault(curve.config.data.split, []).append(curve)
    return out


def limited_entries(curves: Sequence[Curve]) -> list[LimitEntry]:
    """Return every method with every batch size of the curves; large batches get fewer rounds."""
    total = curves[0].config.algorithm.most_rounds

    def rounds(batch: int) -> int:
        return max(2, 3 * total // 10 if batch < 6000 else total // 10)

    batches = sorted({c.config.algorithm.batch for c in curves})
    return [LimitEntry(m, b, rounds(b)) for b in batches for m in LIMITED_METHODS]


def compare_limited_family(
    curves: Sequence[Curve], store: Cache, trials: int, runs: int, jobs: int, progress: Progress
) -> list[LimitOutcome]:
    """Tune and compare all methods for the curves with a limit; `store` holds the trainings."""
    base = curves[0].config
    return compare_with_limit(
        base,
        limited_entries(curves),
        store,
        mark=data_mark(base),
        trials=trials,
        runs=runs,
        executor=functools.partial(in_processes, jobs=jobs),
        progress=progress,
    )


def entries(curves: Sequence[Curve]) -> list[Entry]:
    """Return every method with every (B, E) of the curves; smaller loads get more rounds."""
    shapes = {(c.config.algorithm.batch, c.config.algorithm.local_steps): c.work for c in curves}
    ordered = sorted(shapes, key=lambda shape: (shapes[shape], shape[1]))
    total = curves[0].config.algorithm.most_rounds

    def rounds(load: int) -> int:
        return total if load < 100 else 3 * total // 10 if load < 6000 else total // 10

    return [Entry(m, b, e, max(2, rounds(b * e))) for m, (b, e) in product(METHODS, ordered)]


def compare_family(
    curves: Sequence[Curve], store: Cache, trials: int, runs: int, jobs: int, progress: Progress
) -> list[Outcome]:
    """Tune and compare all methods for one family of curves; `store` holds the trainings."""
    base = curves[0].config
    executor = functools.partial(in_processes, jobs=jobs)
    mark = data_mark(base)
    return compare(
        base,
        entries(curves),
        store,
        mark=mark,
        trials=trials,
        runs=runs,
        executor=executor,
        progress=progress,
    )


def tuned_check(outcomes: Sequence[Outcome]) -> SecondCheck:
    """Return a check of statements about speed by the results of tuned methods."""
    found = {(o.entry.method, o.entry.batch, o.entry.steps, o.target): o for o in outcomes}

    def outcome_of(curve: Curve, target: float) -> Outcome | None:
        """Return the outcome of the method of a curve, or None if it was not compared."""
        chosen = curve.config.algorithm
        limited = bool(curve.config.problem.constraint)
        key = (chosen.name, chosen.batch, chosen.local_steps, target)
        return None if limited else found.get(key)

    def check(statement: Statement, curves: Mapping[str, Measured]) -> Finding | None:
        won: list[str] = []
        lost: list[str] = []
        for quick, slow in _pairs(statement, {n: m.curve for n, m in curves.items()}):
            both = [(t, outcome_of(quick, t), outcome_of(slow, t)) for t in TARGETS]
            seen = [(t, *pair) for t, a, b in both if a and b and (pair := _times(a, b))]
            if all(a is b for _, a, b in both):
                return None  # The curves differ in step sizes only, which are tuned away.
            if not seen:
                return None
            line = f"{quick.label} / {slow.label}: " + ", ".join(
                f"{t:.0%} {_told(a)}/{_told(b)}" for t, a, b in seen
            )
            (won if all(a <= b for _, a, b in seen) else lost).append(line)
        if not won and not lost:
            return None
        summary = f"{len(won)} of {len(won) + len(lost)} comparisons hold at every accuracy"
        return Finding(not lost, summary, (*lost, *won))

    return check


def stored_comparisons(out: Path) -> dict[str, list[Outcome]]:
    """Return the comparisons whose tuned-SPLIT.json is in a folder, by their split."""
    found = {split: read_about(out, f"tuned-{split}") for split in ("sample", "feature")}
    return {split: outcomes_in(about) for split, about in found.items() if about}


def outcomes_in(about: Row) -> list[Outcome]:
    """Return the outcomes that a tuned-SPLIT.json holds."""
    lists = ("settings", "seeds", "rounds", "wire")
    return [
        Outcome(
            **row | {name: tuple(row[name]) for name in lists} | {"entry": Entry(**row["entry"])}
        )
        for row in about["outcomes"]
    ]


def _times(one: Outcome, two: Outcome) -> tuple[float, float] | None:
    """Return the rounds that two methods needed, infinite if not every run reached the target.

    Return None if that decides nothing: neither reached it, or the one that did took longer than
    the other one was run.
    """
    a, b = (o.mean if o.sure else math.inf for o in (one, two))
    known = [o.entry.rounds for o, rounds in ((one, a), (two, b)) if rounds == math.inf]
    return None if min(a, b) == math.inf or any(min(a, b) > tried for tried in known) else (a, b)


def _pairs(statement: Statement, curves: Mapping[str, Curve]) -> Iterator[tuple[Curve, Curve]]:
    """Yield the pairs of curves of which the first is stated to be faster."""
    options = statement.options
    if statement.check == "faster":
        levels = [[p] if isinstance(p, str) else p for p in options["order"]]
        for one, two in pairwise(levels):
            yield from ((curves[a], curves[b]) for a in one for b in two)
    if statement.check == "fewest" and not options.get("beaten"):
        for load in options["at"]:
            here = [c for c in curves.values() if c.work == load]
            own = [c for c in here if c.group == options["group"]]
            yield from ((a, b) for a in own for b in here if b.group != options["group"])


def _told(rounds: float) -> str:
    return f"{rounds:.0f}" if math.isfinite(rounds) else "never"


def write_comparison(out: Path, split: str, outcomes: Sequence[Outcome], origin: Origin) -> Row:
    """Write tuned-SPLIT.csv, .md, .png, .svg and .json; return the content of the last one."""
    return write_files(
        out,
        f"tuned-{split}",
        f"every method tuned alike, {split}-based, without constraints",
        outcomes,
        verdict(outcomes),
        origin,
        csv=table(outcomes, "csv"),
        draw=functools.partial(draw, outcomes),
        page=comparison_page,
    )


def comparison_page(about: Row) -> str:
    """Return tuned-SPLIT.md."""
    outcomes = outcomes_in(about)
    runs = max(len(o.rounds) for o in outcomes)
    how = (
        f"Rounds to a test accuracy. Every method, with every batch size B and number E of local "
        f"steps, got {outcomes[0].trials} trials at the same low-discrepancy points on 80 % of the "
        f"training rows, evaluated on the other 20 %. For each target the settings of its best "
        f"trial were used on all training rows with {runs} other seeds, evaluated on the test "
        "rows. `ssca` with E > 1 is this library's local-step method."
    )
    last = f"MB: all clients, up and down. {origin_line(about)}"
    return page_of(about, how, table(outcomes).rstrip(), last)
