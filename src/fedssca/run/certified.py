"""The end of a run that promises limits for new rows: the certified model is returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedssca.data.split import Columns, Rows
from fedssca.evaluate.biases import biases
from fedssca.evaluate.certificate import no_better_than_constant, unfinished
from fedssca.evaluate.confidence import Promise, certify_alone, certify_path
from fedssca.evaluate.confidence.plain import plain_claim, promised_sides
from fedssca.evaluate.evaluator import Evaluator
from fedssca.evaluate.kkt import Finished
from fedssca.evaluate.limits import held_out_notes
from fedssca.problem.problem import Problem
from fedssca.run.conclude import described
from fedssca.run.result import Result

__all__ = ["with_certificate"]

Row = dict[str, Any]
CAUTIOUS = (
    "prices are not shown: the returned model was made more cautious than the trained one, so that "
    "its limits hold on new rows; a run without a confidence shows them"
)


def with_certificate(
    problem: Problem,
    evaluator: Evaluator,
    parties: Rows | Columns,
    result: Result,
    calibration: Promise,
) -> Result:
    """The result with the boldest model that could be certified, or the same if none could."""
    start = problem.extended(jnp.asarray(result.w))
    tester = calibration.tester(problem)
    if tester.noise is not None:  # the model of the last round, which was evaluated already
        found = certify_alone(problem, tester, (start, result.final))
    else:
        row = evaluator.row(start) | {"round": result.certificate["returned"]["round"]}
        thresholds = biases(problem, parties) if problem.stepwise else None
        found = certify_path(problem, evaluator, tester, (start, row), thresholds)
    if found.point is not None and tester.noise is None:
        again = described(
            problem,
            evaluator,
            *found.point,
            result.state,
            result.rows,
            Finished(found.passes),
            _of_the_run(problem, evaluator, result),
        )
        if not np.array_equal(found.point[0], start):
            again = _cautious(again, result)
        result = replace(
            again, points=result.points, diverged=result.diverged, privacy=result.privacy
        )
    certificate = dict(result.certificate)
    certificate["constraints"] = [
        entry | found.entries.get(m, {}) for m, entry in enumerate(certificate["constraints"])
    ]
    claims = [plain_claim(claim) for claim in found.claims] + found.untold
    certified = found.point is not None
    certificate["limits"] = with_promises(certificate["limits"], claims, certified)
    certificate |= {
        "claims": claims,
        "certified": certified,
        "confidence": found.confidence,
        "certify": "each_site" if calibration.each_site else "pooled",
        "models_tested": found.tested,
    }
    first = _hardly_learnt(problem, evaluator, result)
    notes = first + [note for note in result.notes if note not in first] + found.notes
    return replace(result, certificate=certificate, notes=notes)


def with_promises(limits: Sequence[Row], claims: Sequence[Row], certified: bool) -> list[Row]:
    """The entries of limits with `promise`: low <= quantity <= high on new rows, or at best so.

    Limits that nothing was asked about stay as they are, and so does the status of a limit that the
    held-out rows break.
    """
    found = []
    for entry in limits:
        own = [claim for claim in claims if claim["constraint"] in entry["constraints"]]
        promise = promised_sides(own, certified) | {
            "certified": certified,
            "confidence": 1 - max((claim["delta"] for claim in own), default=0.0),
        }
        sure = certified and entry["status"] in ("kept", "unchecked")
        status = "certified" if sure else entry["status"]
        found.append(entry | {"promise": promise, "status": status} if own else entry)
    return found


def _cautious(result: Result, trained: Result) -> Result:
    """The result of a model that keeps its limits by more than training asked for.

    More rounds cannot make it optimal, so the verdict is that on the trained model; and no
    multiplier of its training problem is the price of the promise, so none is shown.
    """
    verdict = ("kkt_residual", "converged", "more_rounds")
    certificate = result.certificate | {name: trained.certificate[name] for name in verdict}
    certificate["prices"] = CAUTIOUS
    for place in ("constraints", "limits"):
        certificate[place] = [entry | {"multiplier": None} for entry in certificate[place]]
    old = unfinished(result.certificate, result.rows)
    notes = [note for note in result.notes if note not in old]
    said = unfinished(certificate, result.rows)
    return replace(result, certificate=certificate, notes=[*said, *notes])


def _hardly_learnt(problem: Problem, evaluator: Evaluator, result: Result) -> list[str]:
    constant = evaluator.constant if problem.plain else None
    return no_better_than_constant(constant, result.final)


def _of_the_run(problem: Problem, evaluator: Evaluator, result: Result) -> list[str]:
    """The notes that are about the run, and not about the model that it returned."""
    said = [*unfinished(result.certificate, result.rows), *problem.notes]
    said += held_out_notes(result.certificate["limits"])
    said += _hardly_learnt(problem, evaluator, result)
    return [note for note in result.notes if note not in said]
