"""Open, at risk or protected, in plain words, and the setting that would change it."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedssca.methods.participation import cohort_of
from fedssca.run.privacy import hides_sums
from fedssca.studies.audit.count import Count
from fedssca.studies.audit.membership import Membership
from fedssca.studies.audit.observers import Seen, Sight
from fedssca.studies.audit.scene import Scene
from fedssca.studies.audit.score import Score

__all__ = ["LEVELS", "Verdict", "judge", "judge_seen"]

LEVELS = ("protected", "at risk", "open")
CROWD = 8
"""Rows in a sum, over first-layer gradients in it, from which on a row is hard to tell."""
NOTICEABLE, CERTAIN = 0.6, 0.95
"""AUC of a membership test from which on a view is at risk (if it is no accident), and open."""
REBUILT = 0.95
"""Mean correlation from which on rows count as rebuilt."""


class Verdict(NamedTuple):
    """One of LEVELS; why; what to set (empty: nothing)."""

    level: str
    reason: str
    remedy: str


def judge(
    scene: Scene, sight: Sight, found: Count, member: Membership, attack: Score | None, units: int
) -> Verdict:
    """A view of gradients; `units`: the rows m J of the first layer's gradient."""
    level, reason = _level(found, member, attack, sight, units)
    return Verdict(level, reason, "" if level == LEVELS[0] else _remedy(scene, sight, found, units))


def judge_seen(seen: Seen) -> Verdict:
    """A view of something else."""
    safe = "masked" in seen.phase
    if safe and not seen.open:
        return Verdict("protected", seen.reason, "")
    return Verdict("open" if seen.open else "at risk", seen.reason, seen.remedy)


def _level(
    found: Count, member: Membership, attack: Score | None, sight: Sight, units: int
) -> tuple[str, str]:
    noisy = sight.noise is not None and sight.noise.multiplier > 0
    rows = f"{found.rows:,} row{'s' if found.rows > 1 else ''}"
    test = f"a membership test has AUC {member.auc:.2f}"
    sums = f"{found.unknowns:,} unknowns, {found.equations:,} equations"
    if attack and attack.correlation >= REBUILT:
        return "open", f"the attack rebuilt the {rows} (correlation {attack.correlation:.3f})"
    if found.unique:
        return "open", f"{rows}: {sums}, and the rank says that there is one solution"
    if not noisy and member.auc >= CERTAIN:
        return "open", f"{rows}: {sums}; {test}: a row that was used is recognised"
    if attack and attack.correlation > attack.chance + 0.05:
        beyond = f"correlation {attack.correlation:.2f}, with other rows {attack.chance:.2f}"
        return "at risk", f"the attack sees something of the {rows} ({beyond})"
    if member.auc >= NOTICEABLE and member.auc - 2 * member.error > 0.5:
        return "at risk", f"{test}: whoever has a row can often tell that it was used"
    if noisy:
        return "protected", f"noise covers single rows; {test} (a coin's: 0.5)"
    if found.rows <= units:
        return "at risk", f"{rows} in {units} gradients of the first layer: {sums}"
    return (
        "protected",
        f"{rows} in {units} gradients of the first layer: {sums}, so infinitely many solutions; "
        f"{test}. Without noise nothing is guaranteed",
    )


def _remedy(scene: Scene, sight: Sight, found: Count, units: int) -> str:
    noisy = sight.noise is not None and sight.noise.multiplier > 0
    noise = (
        "raise privacy.noise_multiplier"
        if noisy
        else "set privacy.clip and privacy.noise_multiplier = 1"
    )
    if not scene.horizontal:
        wanted = units + 1
        batch = "" if found.rows > units else f"algorithm.batch >= {wanted}, and "
        return f"{batch}{noise}: a secure sum does not hide blocks that parties send alone"
    cohort = cohort_of(scene.algorithm, scene.problem)
    count = cohort.size if cohort else scene.clients.count
    alone = len(sight.clients) == 1
    if alone and count > 1 and not hides_sums(scene.config):
        total = found.rows * count
        first = "set privacy.secure_sum = true"
        if total > CROWD * units:
            return f"{first}: the sum of {count} clients has {total:,} rows, over {units} gradients"
        return (
            f"{first}: the sum of {count} clients has {total:,} rows, "
            f"{'still not above' if total <= units else 'not well above'} {units}: "
            f"use {_batch(scene, units, count)} as well, or {noise}"
        )
    if found.rows <= CROWD * units and not noisy:
        return f"use {_batch(scene, units, count)}, or {noise}"
    return noise


def _batch(scene: Scene, units: int, count: int) -> str:
    """Batches with which a sum has more rows than equations, and with which it is a crowd."""
    steps = scene.algorithm.steps * count
    least, good = math.ceil((units + 1) / steps), math.ceil(CROWD * units / steps)
    return f"algorithm.batch >= {least} (better {good})"
