"""The end of a run: which model is returned, and what is said of it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.evaluate.advice import explain, lowest
from fedssca.evaluate.certificate import (
    BestPoints,
    certify,
    certify_noised,
    early,
    feasible,
    refine,
    restore,
    solution_length,
    unfinished,
)
from fedssca.evaluate.evaluator import Evaluator
from fedssca.evaluate.finish import finish
from fedssca.evaluate.kkt import Finished, objective_scale
from fedssca.evaluate.limits import grain, held_out_notes, limit_entries, noised_limits
from fedssca.evaluate.tally import client_results, group_results
from fedssca.evaluate.thresholds import set_thresholds
from fedssca.methods.algorithm import Algorithm, State
from fedssca.methods.corrected import CorrectedMemory
from fedssca.methods.participation import cohort_of
from fedssca.problem.problem import Array, Problem
from fedssca.rounds.compressed import Compressed
from fedssca.run.result import Result

__all__ = ["conclude", "described", "last_steps"]

Row = dict[str, Any]
OWN = {
    "round",
    "slack",
    "multipliers",
    "bytes_up",
    "bytes_down",
    "bytes_peer",
    "seconds",
    "epsilon",
}
"""What describes the run as a whole, not the model that it returns."""
LEAST, MOST = 20, 60
"""How many last steps a run has that is not short, and that any run has."""


def conclude(
    problem: Problem,
    evaluator: Evaluator,
    points: BestPoints | None,
    state: State,
    rows: list[Row],
    steps: int = 0,
    thresholds: np.ndarray | None = None,
) -> Result:
    """Choose the model to return, and certify it or explain why it breaks a limit.

    Without `points` the last model is returned: a choice by exact values would leak information.
    Otherwise the last model is improved on all training rows first: by at most `steps` steps of
    `evaluate.finish`, and by the biases at the positions `thresholds`. A regression takes these
    steps without limits too.
    """
    if evaluator.noisy:
        return _noised(problem, state, rows)
    w, row, passes, notes = state.w, rows[-1], 0, []
    found, done = Finished(0), int(rows[-1]["round"])
    if problem.constraints and points is None and not feasible(row):
        notes = explain(problem, rows, row)
    elif not problem.constraints and points is not None:
        if steps and problem.steady:
            found = finish(evaluator, points, state.w, rows[-1], steps, problem.stepwise)
            passes = found.passes
            w, row = points.best or (w, row)
    elif points is not None:
        if steps:
            found = finish(evaluator, points, state.w, rows[-1], steps, problem.stepwise)
        passes = found.passes
        passes += set_thresholds(problem, evaluator, points, state.w, rows[-1], thresholds)
        if points.last is None or early(points.last[1], done):
            passes += restore(evaluator, points, state.w, rows[-1])
        if points.best is not None:
            w, row, more = refine(evaluator, points, state.w)
            points.best, passes = (w, row), passes + more
            if points.last and early(points.last[1], done):
                notes = [
                    f"the returned model is that of round {row['round']}, hardly trained: later "
                    "ones broke a limit; train longer, use a larger batch, or relax the limit"
                ]
        elif points.least is not None:
            w, row = points.least
            length, passes = solution_length(problem, w), passes + 1
            floor = lowest(problem, row["constraints"], evaluator.gradients(w), length)
            notes = explain(problem, rows, row, floor)
    return described(problem, evaluator, w, row, state, rows, found._replace(passes=passes), notes)


def described(
    problem: Problem,
    evaluator: Evaluator,
    w: Array,
    row: Row,
    state: State,
    rows: list[Row],
    found: Finished,
    notes: list[str],
) -> Result:
    """The result of a run that returns w, whose evaluation is `row`; `found` led to it."""
    tally = evaluator.tally(w)
    certificate = certify(
        problem,
        evaluator,
        w,
        row,
        rows[-1]["slack"],
        rows[-1]["multipliers"],
        found,
        rounds=int(rows[-1]["round"]),
        scale=objective_scale(float(row["objective"]), rows),
        grain=grain(problem, tally),
    )
    notes = [*notes, *unfinished(certificate, rows), *problem.notes]
    certificate["limits"] = limit_entries(problem, certificate["constraints"], tally)
    notes += held_out_notes(certificate["limits"])
    certificate["returned"] = {"round": row.get("round"), "search_passes": found.passes}
    kept = {name: row[name] for name in rows[-1] if name in row and name not in OWN}
    return Result(
        w=np.asarray(problem.model(w)),
        params=problem.unravel(w),
        last=np.asarray(problem.model(state.w)),
        final=rows[-1] | kept,
        certificate=certificate,
        notes=notes,
        rows=rows,
        state=jax.device_get(state),
        clients=client_results(tally),
        groups=group_results(problem, tally),
        hidden=tally.sums.hidden,
    )


def _noised(problem: Problem, state: State, rows: list[Row]) -> Result:
    """The last model, with what its noised evaluation says of it."""
    row = rows[-1]
    notes = explain(problem, rows, row) if problem.constraints and not feasible(row) else []
    certificate = certify_noised(problem, row, row["slack"], row["multipliers"])
    certificate["limits"] = noised_limits(problem, certificate["constraints"], row)
    certificate["returned"] = {"round": row.get("round"), "search_passes": 0}
    return Result(
        w=np.asarray(problem.model(state.w)),
        params=problem.unravel(state.w),
        last=np.asarray(problem.model(state.w)),
        final=row,
        certificate=certificate,
        notes=[*notes, *problem.notes],
        rows=rows,
        state=jax.device_get(state),
        hidden="not computed: the run protects single rows by noise",
    )


def last_steps(
    algorithm: Algorithm, problem: Problem, parties: Rows | Columns, state: State
) -> int:
    """How many steps on all training rows follow the last round.

    They are part of the default method with limits, or for a regression, whose gradient noise does
    not fall as rows are fitted; other runs end where their rounds end. There are at most T / 12
    of them, and no more than cost 2.5 times as many gradients of single rows as the rounds did; but
    LEAST in every run that is not short, and MOST of a regression.
    """
    memory = state.memory.method if isinstance(state.memory, Compressed) else state.memory
    if not isinstance(memory, CorrectedMemory):
        return 0
    cohort, rounds = cohort_of(algorithm, problem), int(state.round) + 1
    each = algorithm.batch * algorithm.steps
    many = cohort.size if cohort else parties.count
    drawn = each * many if isinstance(parties, Rows) else each
    most = min(rounds / 12, 2.5 * rounds * drawn / parties.total)
    least = MOST if problem.steady else LEAST
    return int(min(max(most, min(least, rounds / 5)), MOST))
