"""Checks the statements of the paper against what was measured.

faster     order: labels, the fastest first (a list stands for several); at, by
keeps      curve: the constraint holds at the end, in every run
fewest     group needs the fewest rounds among curves of equal B x E: at, targets, beaten
falls      series: |w|^2 falls from point to point as the training cost rises
steers     series: training cost within a share `within` of U, test accuracy falls as U rises
equivalent free, limited: series over lambda and over U; at equal training cost |w|^2 differs by at
           most a share `within`, and lambda from 1 / nu by at most `multiplier_within`
satisfies  curve: its step sizes satisfy the conditions of Theorems 1 to 4
identical  curve: largest relative distance between two trajectories at most `within`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedssca.methods.schedule import Schedule, broken_conditions
from fedssca.studies.reproduce.measure import Measured

if TYPE_CHECKING:
    from fedssca.studies.reproduce.experiment import Experiment, Statement

__all__ = [
    "CHECKS",
    "DEFINITION",
    "Finding",
    "SecondCheck",
    "Verdict",
    "VerdictWord",
    "check_all",
]

ROUNDS = (100, 200, 500, 999)
DEFINITION = (
    "Converges faster: the mean over the runs of the training cost is lower (of the test accuracy: "
    "higher) at each of the rounds t = 100, 200, 500, 999."
)
Found = Mapping[str, Measured]
Number = (int, float)


class Finding(NamedTuple):
    """The outcome of one check, in one line and in detail."""

    holds: bool
    summary: str
    details: tuple[str, ...] = ()


class VerdictWord(StrEnum):
    """What the measurements say about a statement."""

    HOLDS = "holds"
    FAILS = "does not hold"
    ONLY_AS_PRINTED = "holds only at the printed settings"


class Verdict(NamedTuple):
    """A statement, what was measured, and what that says about it."""

    statement: Statement
    finding: Finding
    word: VerdictWord


SecondCheck = Callable[["Statement", Found], Finding | None]
"""A second check of statements; it returns None for statements that it cannot check."""


class Check(NamedTuple):
    """A kind of check: its function, and the options that a [[statement]] may give it."""

    function: Callable[..., Finding]
    options: dict[str, Any]
    needed: tuple[str, ...]


def check_all(
    panel: Experiment, found: Found, tuned_check: SecondCheck | None = None
) -> list[Verdict]:
    """Check all statements of a panel; `tuned_check` repeats it with methods tuned alike."""
    verdicts = []
    for statement in panel.statements:
        finding = CHECKS[statement.check].function(found, **statement.options)
        word = VerdictWord.HOLDS if finding.holds else VerdictWord.FAILS
        tuned = tuned_check(statement, found) if tuned_check else None
        if tuned is not None:
            if finding.holds and not tuned.holds:
                word = VerdictWord.ONLY_AS_PRINTED
            more = (f"tuned alike: {tuned.summary}", *(f"tuned: {d}" for d in tuned.details))
            finding = finding._replace(details=(*finding.details, *more))
        verdicts.append(Verdict(statement, finding, word))
    return verdicts


def faster(
    found: Found,
    order: Sequence[str | Sequence[str]],
    at: Sequence[int] = ROUNDS,
    by: str = "train_cost",
) -> Finding:
    """Check that every curve is ahead of those at the next place in `order` at rounds `at`."""
    sign = 1 if by.endswith("cost") else -1
    levels = [[place] if isinstance(place, str) else list(place) for place in order]
    won: list[str] = []
    lost: list[str] = []
    for quick, slow in ((a, b) for one, two in pairwise(levels) for a in one for b in two):
        rounds = _common(found[quick], found[slow], at)
        left, right = ([found[name].at(t, by).mean() for t in rounds] for name in (quick, slow))
        ahead = sum(sign * a < sign * b for a, b in zip(left, right, strict=True))
        numbers = ", ".join(f"{a:.3f}/{b:.3f}" for a, b in zip(left, right, strict=True))
        where = "rounds" if tuple(rounds) == ROUNDS else f"rounds {rounds}"
        line = f"{quick} ahead of {slow} at {ahead} of {len(rounds)} {where}: {numbers}"
        (won if ahead == len(rounds) else lost).append(line)
    count = len(won) + len(lost)
    summary = f"{len(won)} of {count} comparisons hold at all rounds"
    if lost:
        summary += f"; not: {lost[0]}"
    if count == 1:
        return Finding(not lost, (won + lost)[0])
    return Finding(not lost, summary, (*won, *lost))


def keeps(found: Found, curve: str) -> Finding:
    """Check that F(w) <= U at the end of every run."""
    measured = found[curve]
    cost, limit = measured.final("train_cost"), measured.curve.limit
    kept = int((cost <= limit).sum())
    return Finding(
        kept == len(cost),
        f"F = {_spread(cost, '.4f')} against U = {limit:g}: kept in {kept} of {len(cost)} runs; "
        f"|w|² = {_spread(measured.final('norm_sq'), '.1f')}",
    )


def fewest(
    found: Found,
    group: str,
    at: Sequence[int],
    targets: Sequence[float] = (0.9, 0.95),
    beaten: bool = False,
) -> Finding:
    """Check that at each B x E in `at` no other curve reaches the accuracy in fewer rounds.

    With `beaten` it checks the opposite: some curve does. An accuracy that no curve reaches does
    not count.
    """
    details, good, cases = [], 0, 0
    for target in targets:
        for work in at:
            rounds = {
                m.curve.label: m.rounds_to(target).mean()
                for m in found.values()
                if m.curve.work == work
            }
            own = min(rounds[name] for name in rounds if found[name].curve.group == group)
            others = {n: r for n, r in rounds.items() if found[n].curve.group != group}
            rival = min(others, key=lambda name: others[name])
            if np.isfinite(min(own, others[rival])):  # Otherwise neither reached it.
                cases, good = cases + 1, good + (bool(own <= others[rival]) != beaten)
            details.append(
                f"{target:.0%} at B×E = {work}: {group} {_rounds(own)}, "
                f"best other {_rounds(others[rival])} ({rival})"
            )
    wanted = "beaten" if beaten else "the fewest rounds"
    summary = f"{wanted} in {good} of {cases} cases: " + "; ".join(details)
    return Finding(0 < good == cases, summary)


def falls(found: Found, series: str) -> Finding:
    """Check that |w|^2 falls from point to point as the training cost rises."""
    points = sorted(
        (float(m.final("train_cost").mean()), float(m.final("norm_sq").mean()))
        for m in _members(found, series)
    )
    steps = [right < left for (_, left), (_, right) in pairwise(points)]
    numbers = ", ".join(f"({cost:.3f}, {norm:.1f})" for cost, norm in points)
    return Finding(
        all(steps), f"falls at {sum(steps)} of {len(steps)} steps; (cost, |w|²): {numbers}"
    )


def steers(found: Found, series: str, within: float = 0.1) -> Finding:
    """Check that the limit U determines the training cost, and thereby the test accuracy."""
    members = sorted(_members(found, series), key=lambda m: m.curve.limit)
    limits = np.array([m.curve.limit for m in members])
    cost = np.array([m.final("train_cost").mean() for m in members])
    accuracy = np.array([m.final("test_accuracy").mean() for m in members])
    gap = np.abs(cost - limits)
    details = tuple(
        f"U = {u:g}: F = {f:.4f}, |F - U| = {g:.4f}, test accuracy {a:.2%}"
        for u, f, g, a in zip(limits, cost, gap, accuracy, strict=True)
    )
    near = int((gap <= within * limits).sum())
    return Finding(
        near == len(limits) and bool((np.diff(accuracy) <= 0).all()),
        f"F within {within:.0%} of U at {near} of {len(limits)} limits, largest |F - U| "
        f"{gap.max():.4f}; accuracy {accuracy[0]:.2%} to {accuracy[-1]:.2%}",
        details,
    )


def equivalent(
    found: Found, free: str, limited: str, within: float = 0.02, multiplier_within: float = 0.1
) -> Finding:
    """Check that min F + lambda |w|^2 and min |w|^2 s.t. F <= U have the same solutions.

    Their conditions of stationarity agree for lambda = 1 / nu. Each run with a limit is compared
    with the runs over lambda of the same seed, at its own F: log |w|^2 and log lambda are
    interpolated there, linearly in log F.
    """
    norms, prices, details = [], [], []
    for m in sorted(_members(found, limited), key=lambda m: m.curve.limit):
        pairs = [*at_equal_cost(found, free, m)]
        if not pairs:
            details.append(f"U = {m.curve.limit:g}: outside the costs over lambda")
            continue
        apart = np.array([(p.norm / p.free_norm, p.price / p.weight) for p in pairs]) - 1
        norms.append(np.abs(apart[:, 0]).max())
        prices.append(np.abs(apart[:, 1]).max())
        mean = pairs[0] if len(pairs) == 1 else AtEqualCost(*np.array(pairs).mean(axis=0))
        details.append(
            f"U = {m.curve.limit:g}: F = {mean.cost:.4f}, |w|² = {mean.norm:.2f} against "
            f"{mean.free_norm:.2f}, 1/ν = {mean.price:.3g} against λ = {mean.weight:.3g}"
        )
    if not norms:
        return Finding(False, "no run with a limit ends at a cost between those over lambda")
    return Finding(
        bool(max(norms) <= within and max(prices) <= multiplier_within),
        f"at {len(norms)} limits |w|² differs by at most {max(norms):.1%} (at most {within:.0%} "
        f"wanted), 1/ν from λ by at most {max(prices):.1%} "
        f"(at most {multiplier_within:.0%} wanted)",
        tuple(details),
    )


class AtEqualCost(NamedTuple):
    """A run with a limit, and the run without that would end at the same training cost."""

    cost: float
    norm: float
    free_norm: float
    price: float
    """1 / nu."""
    weight: float
    """lambda."""


def at_equal_cost(found: Found, free: str, limited: Measured) -> Iterator[AtEqualCost]:
    """Yield the comparison of every run of a curve with a limit that lies between runs without."""
    others = _members(found, free)
    weight = np.log([m.curve.weight for m in others])
    ends = zip(*(limited.final(q) for q in ("train_cost", "norm_sq", "multipliers")), strict=True)
    for number, (cost, norm, nu) in enumerate(ends):
        costs = np.log([m.final("train_cost")[number] for m in others])
        norms = np.log([m.final("norm_sq")[number] for m in others])
        order, here = np.argsort(costs), np.log(cost)
        if costs[order[0]] <= here <= costs[order[-1]] and nu[0] > 0:
            own, lam = (np.interp(here, costs[order], x[order]) for x in (norms, weight))
            yield AtEqualCost(cost, norm, float(np.exp(own)), 1 / nu[0], float(np.exp(lam)))


def satisfies(found: Found, curve: str) -> Finding:
    """Check that step sizes satisfy the conditions of the theorems."""
    chosen = found[curve].curve.config.algorithm
    if chosen.rho is None or chosen.gamma is None:
        return Finding(
            False, "the step sizes are found by calibration, and fall to zero at the end"
        )
    rho, gamma = (
        Schedule(step.a, step.alpha, cool=step.cool, horizon=chosen.most_rounds)
        for step in (chosen.rho, chosen.gamma)
    )
    broken = broken_conditions(rho, gamma)
    return Finding(not broken, "; ".join(broken) or "all conditions hold")


def identical(found: Found, curve: str, within: float) -> Finding:
    """Check that two forms of the same method have the same trajectory."""
    measured = found[curve]
    far = max(measured.at(t, "distance").max() for t in measured.rounds)
    text = f"largest |w - w'| / |w| up to round {measured.rounds[-1]}: {far:.1e}"
    return Finding(bool(far <= within), f"{text} (at most {within:g} wanted)")


CHECKS: dict[str, Check] = {
    "faster": Check(faster, {"order": list, "at": [Number], "by": str}, ("order",)),
    "keeps": Check(keeps, {"curve": str}, ("curve",)),
    "fewest": Check(
        fewest, {"group": str, "at": [Number], "targets": [Number], "beaten": bool}, ("group", "at")
    ),
    "falls": Check(falls, {"series": str}, ("series",)),
    "steers": Check(steers, {"series": str, "within": Number}, ("series",)),
    "equivalent": Check(
        equivalent,
        {"free": str, "limited": str, "within": Number, "multiplier_within": Number},
        ("free", "limited"),
    ),
    "satisfies": Check(satisfies, {"curve": str}, ("curve",)),
    "identical": Check(identical, {"curve": str, "within": Number}, ("curve", "within")),
}


def _common(one: Measured, two: Measured, at: Sequence[int]) -> list[int]:
    """Return the rounds of `at` at which both were evaluated, or the last common round."""
    both = set(one.rounds) & set(two.rounds)
    return [t for t in at if t in both] or [max(both)]


def _members(found: Found, series: str) -> list[Measured]:
    return [m for m in found.values() if m.curve.series == series]


def _spread(values: np.ndarray, form: str) -> str:
    if len(values) == 1:
        return f"{values[0]:{form}}"
    return f"{values.mean():{form}} ± {values.std(ddof=1):{form}}"


def _rounds(count: float) -> str:
    return f"{count:.0f}" if np.isfinite(count) else "never"
