"""From cautious to bold models: the boldest of which the statement can still be made.

The path is fixed before any calibration row is looked at. It leads from a model that minimises the
objective under limits tightened by twice the margin that certification needs, over one under limits
tightened by the margin, to the trained model; between them it is straight. Training rows tell too
little of a model that fits them too well, so where limits are on rates, there are models before the
first one, whose thresholds are shifted further into the limits.

The models are tested in this order until the first that does not pass, and the last that passed is
returned. Testing in a fixed order until the first failure needs no correction for the number of
models: a wrong statement is made only if the first model of which it is wrong passes, which has
probability delta at most (Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then Test", 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedssca.evaluate.certificate import BestPoints
from fedssca.evaluate.confidence.claims import Claim, ClaimResult
from fedssca.evaluate.confidence.margins import margin_of, room_of
from fedssca.evaluate.confidence.plain import untold_claim
from fedssca.evaluate.confidence.statement import TestedStatement, Tester
from fedssca.evaluate.evaluator import Evaluator
from fedssca.evaluate.finish import finish
from fedssca.evaluate.thresholds import set_thresholds
from fedssca.problem.limits import StatedLimit
from fedssca.problem.problem import Array, Problem

__all__ = ["Certified", "cautious_to_bold", "certify_alone", "certify_path", "last_passed"]

Row = dict[str, Any]
KNOTS = (2.0, 1.0)
"""The shares of the margin by which limits are tightened where the path bends."""
SHARES = (2.0, 1.6, 1.3, 1.1, 0.9, 0.75, 0.6, 0.45, 0.3, 0.15, 0.0)
"""The same of the models that are tested, the most cautious first; 0 is the trained model."""
SHIFTS = (32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5)
"""How far thresholds are shifted before these, in units of the scores."""
MOST_TESTED = len(SHIFTS) + len(SHARES)
"""The largest number of models of a path."""
FIRST_FAILED = (
    "not certified: every limit passes its test for the returned model alone, but the first model "
    "of the path, which should be the most cautious one, did not, and no model behind a failure "
    "counts; set aside more rows (data.calibration_fraction), or relax the limits"
)
"""What is said if the trained model passes, which was not to be tested any more."""
STEPS = 15
"""The steps on all training rows from one bend of the path to the next."""


class Margins(NamedTuple):
    """By how much limits are tightened, in the units of the F_m; 0 where nothing is certified."""

    needed: np.ndarray
    """What certification needs."""
    possible: np.ndarray
    """What models can keep at most."""


class Certified(NamedTuple):
    """The outcome of a path."""

    point: tuple[Array, Row] | None
    """The boldest model that passed; None if none did."""
    entries: dict[int, Row]
    """What is said of each constraint m about new rows."""
    confidence: float
    notes: list[str]
    claims: list[ClaimResult]
    """The claims about the returned model, with their tests."""
    tested: int
    """How many models were tested."""
    passes: int
    """Passes over all training rows."""
    untold: list[Row]
    """The claims whose evidence stays with the sites, as plain values."""


def _margins(
    problem: Problem, tester: Tester, evaluator: Evaluator, at: Array, row: Row
) -> Margins:
    """The margins of all constraints."""
    needed, possible = np.zeros((2, problem.constraints))
    tally = evaluator.tally(at)
    rows = tester.expected_rows(tally)
    for limit in tester.limits:
        delta = tester.delta(limit)
        assert delta is not None
        known = tally.estimate(tally.sums.train, limit.quantity)
        margin = margin_of(limit, rows[limit.quantity], known, delta, tester.clip)
        value = None if known is None else known.value
        for m in limit.constraints:
            needed[m], possible[m] = np.array([margin, room_of(limit)]) * _unit(
                problem, m, value, row
            )
    return Margins(needed, possible)


def _unit(problem: Problem, m: int, value: float | None, row: Row) -> float:
    """How much F_m changes when its quantity changes by 1: not 1 for a precision."""
    bound = problem.bounds[m]
    if value is None:
        return 1.0
    distance = value - bound.high if bound.high is not None else (bound.low or 0.0) - value
    found = float(row["constraints"][m])
    if abs(distance) < 1e-6 or found * distance <= 0:
        return 1.0
    return min(found / distance, 1.0)


def cautious_to_bold(
    problem: Problem,
    evaluator: Evaluator,
    tester: Tester,
    start: tuple[Array, Row],
    thresholds: np.ndarray | None,
) -> tuple[list[Array], int]:
    """The models of the path that ends at `start`, and the passes over all training rows."""
    margins = _margins(problem, tester, evaluator, *start)
    knots, now, passes = [(0.0, start[0])], start, 1
    for share in KNOTS:
        tighter = np.minimum(share * margins.needed, margins.possible)
        found, used = _tightened_model(problem, evaluator, now, tighter, thresholds)
        passes += used
        if found is not None:
            knots, now = [*knots, (share, found[0])], found
    path = _between(sorted(knots, key=lambda knot: knot[0]))
    if not problem.stepwise:
        return path, passes
    before = _shifted(
        problem, evaluator, path[0], np.minimum(2 * margins.needed, margins.possible), thresholds
    )
    return before + path, passes + len(SHIFTS) + 2


def _shifted(
    problem: Problem,
    evaluator: Evaluator,
    w: Array,
    margins: np.ndarray,
    thresholds: np.ndarray | None,
) -> list[Array]:
    """Models like w with shifted thresholds.

    They keep limits on rates with margins, or as well as w does, and other limits as well as w.
    The limit on a rate that is nearest to being broken says in which direction. A model without
    thresholds moves as a whole, by a tenth of its length instead of a unit of the scores.
    """
    here = np.array(evaluator.row(w)["constraints"])
    nearest = max(problem.stepwise, key=lambda m: float(here[m] + margins[m]))
    slope = evaluator.gradients(w)[1 + nearest]
    moved = np.arange(w.size) if thresholds is None else thresholds
    if not np.isfinite(slope).all() or not slope[moved].any():
        return []
    line = np.zeros(w.size, w.dtype)
    line[moved] = -slope[moved] / np.abs(slope[moved]).max()
    if thresholds is None:
        line *= 0.1 * float(np.linalg.norm(w)) / float(np.linalg.norm(line))
    most, found = here.copy(), list[Array]()
    rates = list(problem.stepwise)
    most[rates] = np.maximum(here, -margins)[rates]
    for shift in reversed(SHIFTS):
        point = w + shift * line
        if not (np.array(evaluator.row(point)["constraints"]) <= most).all():
            break
        found.insert(0, point)
    return found


def last_passed(
    tester: Tester, evaluator: Evaluator, path: Sequence[Array]
) -> tuple[Array | None, TestedStatement | None, int]:
    """The last model before the first failure, what is said of it, and how many were tested."""
    passed, statement = None, None
    for number, point in enumerate(path, start=1):
        latest = tester.test(point, evaluator.tally(point))
        if not latest.passed:
            return passed, statement, number
        passed, statement = point, latest
    return passed, statement, len(path)


def certify_path(
    problem: Problem,
    evaluator: Evaluator,
    tester: Tester,
    start: tuple[Array, Row],
    thresholds: np.ndarray | None,
) -> Certified:
    """Make the path from the trained model `start`, and test it."""
    w, row = start
    path, passes = cautious_to_bold(problem, evaluator, tester, start, thresholds)
    found, statement, tested = last_passed(tester, evaluator, path)
    passed = None if found is None else (found, evaluator.row(found) | {"round": row["round"]})
    notes = []
    if statement is None:
        statement = tester.test(w, evaluator.tally(w))
        notes += tester.what_is_missing(w, statement)
        if statement.passed:
            notes.append(FIRST_FAILED)
    return _certified(problem, tester, start, passed, statement, notes, tested, passes)


def certify_alone(problem: Problem, tester: Tester, start: tuple[Array, Row]) -> Certified:
    """Test the trained model `start` and no other, on counts with noise.

    A path would be made from exact results on training rows, and each of its models would need
    noise of its own.
    """
    statement = tester.test_alone(start[0])
    passed = start if statement.passed else None
    notes = [] if statement.passed else tester.what_is_missing(start[0], statement)
    return _certified(problem, tester, start, passed, statement, notes, 1, 0)


def _certified(
    problem: Problem,
    tester: Tester,
    start: tuple[Array, Row],
    passed: tuple[Array, Row] | None,
    statement: TestedStatement,
    notes: list[str],
    tested: int,
    passes: int,
) -> Certified:
    """The outcome, from the statement about the model that `passed`, or else about `start`."""
    certified, untold = passed is not None, []
    if statement.sites_passed is None:
        entries = _entries(problem, tester.limits, statement, certified)
    else:
        entries = _own_entries(problem, tester, (passed or start)[0], certified)
        untold = [
            untold_claim(m, site, tester.claim(limit, m), certified)
            for limit in tester.limits
            for site in range(statement.sites_passed[1])
            for m in limit.constraints
            if limit.client in (None, site)
        ]
    return Certified(
        passed,
        entries,
        tester.confidence,
        notes,
        statement.claims,
        tested,
        passes,
        untold,
    )


def _between(knots: Sequence[tuple[float, Array]]) -> list[Array]:
    """The models of the path, the most cautious first; `knots` are (share, model), rising."""
    shares, models = [share for share, _ in knots], [model for _, model in knots]
    path = []
    for share in (share for share in SHARES if share <= shares[-1]):
        above = next(i for i, knot in enumerate(shares) if knot >= share)
        if shares[above] == share:
            path.append(models[above])
            continue
        part = (share - shares[above - 1]) / (shares[above] - shares[above - 1])
        path.append(models[above - 1] + part * (models[above] - models[above - 1]))
    return path


def _tightened_model(
    problem: Problem,
    evaluator: Evaluator,
    start: tuple[Array, Row],
    margins: np.ndarray,
    thresholds: np.ndarray | None,
) -> tuple[tuple[Array, Row] | None, int]:
    """The best model near `start` that keeps limits on training rows with margins; the passes."""

    def tight(w: Array) -> Row:
        row = evaluator.row(w)
        return row | {
            "constraints": [f + r for f, r in zip(row["constraints"], margins, strict=True)]
        }

    narrower, points = evaluator._replace(row=tight), BestPoints()
    w, before = start
    row = tight(w) | {"round": before["round"]}
    points.see(w, row)
    passes = finish(narrower, points, w, row, STEPS, problem.stepwise).passes
    passes += set_thresholds(problem, narrower, points, w, row, thresholds)
    if points.best is None:
        return None, passes
    w, row = points.best
    loose = [f - r for f, r in zip(row["constraints"], margins, strict=True)]
    return (w, row | {"constraints": loose}), passes


def _counted_rows(rows: np.ndarray, whole: bool) -> int:
    """The number of calibration rows of a claim, from those of its means.

    If a group is compared with all rows (`whole`), the rows of the group are among them.
    """
    return max(0, round(float(rows.max() if whole else rows.sum())))


def _entries(
    problem: Problem, limits: Sequence[StatedLimit], statement: TestedStatement, certified: bool
) -> dict[int, Row]:
    """What the certificate says of each constraint about new rows.

    The bound of a certified limit is the limit itself: this is what the test of the path proves.
    Otherwise it is the bound of the returned model, taken alone.
    """
    entries: dict[int, Row] = {}
    for m in (m for limit in limits for m in limit.constraints):
        own = [claim for claim in statement.claims if claim.constraint == m]
        worst = max(own, key=lambda claim: claim.p_value)
        bound = worst.claim.limit if certified else max(claim.bound for claim in own)
        entries[m] = {
            "confidence": 1 - worst.claim.delta,
            "certified": certified,
            "bound": _in_own_unit(problem, m, worst.claim, bound),
            "p_value": worst.p_value,
            "calibration_rows": sum(
                _counted_rows(claim.seen.rows, claim.claim.whole) for claim in own
            ),
            "calibration_value": worst.seen.value if worst.known else None,
            "calibration_counts": worst.seen.counts,
        }
        if worst.site is not None:
            entries[m]["per_site"] = [
                {
                    "site": claim.site,
                    "value": claim.seen.value,
                    "counts": claim.seen.counts,
                    "p_value": claim.p_value,
                }
                for claim in own
            ]
    return entries


def _own_entries(problem: Problem, tester: Tester, w: Array, certified: bool) -> dict[int, Row]:
    """The same where every site has tested its own claims, and keeps its counts and bounds."""
    rows, entries = tester.rows(w), {}
    for limit in tester.limits:
        counted = rows[limit.quantity]
        for m in limit.constraints:
            claim = tester.claim(limit, m)
            entries[m] = {
                "confidence": 1 - claim.delta,
                "certified": certified,
                "bound": _in_own_unit(problem, m, claim, claim.limit) if certified else None,
                "p_value": None,
                "calibration_rows": _counted_rows(counted, limit.whole),
                "calibration_value": None,
                "calibration_counts": None,
            }
    return entries


def _in_own_unit(problem: Problem, m: int, claim: Claim, bound: float) -> float | None:
    """A bound as the limit is stated: of a recall the least value is promised.

    It is None if there is no bound, because nothing is known of the range of the values.
    """
    if not np.isfinite(bound):
        return None
    below = claim.sign < 0 and not np.isclose(problem.limits[m], claim.limit)
    return -bound if below else bound
