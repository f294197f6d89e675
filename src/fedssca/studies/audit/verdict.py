"""The verdict on an observer: open, at risk or protected, and the setting that would change it."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedssca.methods.participation import cohort_of
from fedssca.run.privacy import hides_sums
from fedssca.studies.audit.audited_run import AuditedRun
from fedssca.studies.audit.count import Count
from fedssca.studies.audit.membership import Membership
from fedssca.studies.audit.observers import GradientObservation, IntermediateObservation
from fedssca.studies.audit.score import Score
from fedssca.studies.audit.vocabulary import Level

__all__ = ["PrivacyVerdict", "assess", "assess_intermediate"]

CROWD = 8
"""The ratio of rows to first-layer gradients above which a single row is hard to recognise."""
NOTICEABLE = 0.6
"""The AUC of a membership test above which a message is at risk, if it is statistically clear."""
CERTAIN = 0.95
"""The AUC of a membership test above which a message without noise is open."""
REBUILT = 0.95
"""The mean correlation above which rows count as rebuilt."""


class PrivacyVerdict(NamedTuple):
    """How well the rows are protected from one observer."""

    level: Level
    reason: str
    """Why, in words."""
    remedy: str
    """The setting that would change the level; empty if they are protected."""


def assess(
    run: AuditedRun,
    observation: GradientObservation,
    found: Count,
    member: Membership,
    attack: Score | None,
    units: int,
) -> PrivacyVerdict:
    """Assess a message of gradients; `units` is the number m J of first-layer gradients."""
    level, reason = _level(found, member, attack, observation, units)
    safe = level is Level.PROTECTED
    remedy = "" if safe else _remedy(run, observation, found, units)
    return PrivacyVerdict(level, reason, remedy)


def assess_intermediate(seen: IntermediateObservation) -> PrivacyVerdict:
    """Assess a message of intermediate results, whose level follows from its kind."""
    return PrivacyVerdict(seen.level, seen.reason, seen.remedy)


def _level(
    found: Count,
    member: Membership,
    attack: Score | None,
    observation: GradientObservation,
    units: int,
) -> tuple[Level, str]:
    noisy = observation.noise is not None and observation.noise.multiplier > 0
    rows = f"{found.rows:,} row{'s' if found.rows > 1 else ''}"
    test = f"a membership test has AUC {member.auc:.2f}"
    sums = f"{found.unknowns:,} unknowns, {found.equations:,} equations"
    if attack and attack.correlation >= REBUILT:
        words = f"the attack rebuilt the {rows} (correlation {attack.correlation:.3f})"
        return Level.OPEN, words
    if found.unique:
        return Level.OPEN, f"{rows}: {sums}, and by the rank there is only one solution"
    if not noisy and member.auc >= CERTAIN:
        return Level.OPEN, f"{rows}: {sums}; {test}, which recognises the rows that were used"
    if attack and attack.correlation > attack.chance + 0.05:
        beyond = f"correlation {attack.correlation:.2f}, with other rows {attack.chance:.2f}"
        return Level.AT_RISK, f"the attack reveals something about the {rows} ({beyond})"
    if member.auc >= NOTICEABLE and member.auc - 2 * member.error > 0.5:
        return Level.AT_RISK, f"{test}: an observer that has a row can often tell that it was used"
    if noisy:
        return Level.PROTECTED, f"the noise hides single rows; {test} (0.5 is chance)"
    if found.rows <= units:
        return Level.AT_RISK, f"{rows} in {units} gradients of the first layer: {sums}"
    return (
        Level.PROTECTED,
        f"{rows} in {units} gradients of the first layer: {sums}, so infinitely many solutions; "
        f"{test}. Without noise nothing is guaranteed",
    )


def _remedy(run: AuditedRun, observation: GradientObservation, found: Count, units: int) -> str:
    noisy = observation.noise is not None and observation.noise.multiplier > 0
    noise = (
        "raise privacy.noise_multiplier"
        if noisy
        else "set privacy.clip and privacy.noise_multiplier = 1"
    )
    if not run.horizontal:
        wanted = units + 1
        batch = "" if found.rows > units else f"algorithm.batch >= {wanted}, and "
        return f"{batch}{noise}: a secure sum does not hide blocks that parties send alone"
    cohort = cohort_of(run.algorithm, run.problem)
    count = cohort.size if cohort else run.clients.count
    alone = len(observation.clients) == 1
    if alone and count > 1 and not hides_sums(run.config):
        total = found.rows * count
        first = "set privacy.secure_sum = true"
        if total > CROWD * units:
            return f"{first}: the sum of {count} clients has {total:,} rows, over {units} gradients"
        return (
            f"{first}: the sum of {count} clients has {total:,} rows, "
            f"{'still not above' if total <= units else 'not well above'} {units}: "
            f"use {_batch(run, units, count)} as well, or {noise}"
        )
    if found.rows <= CROWD * units and not noisy:
        return f"use {_batch(run, units, count)}, or {noise}"
    return noise


def _batch(run: AuditedRun, units: int, count: int) -> str:
    """Name the batches for more rows than equations, and for many more."""
    steps = run.algorithm.steps * count
    least, good = math.ceil((units + 1) / steps), math.ceil(CROWD * units / steps)
    return f"algorithm.batch >= {least} (better {good})"
