"""The counts of a statement again, from calibration rows that their holders show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.evaluate.confidence.claims import claim_p_value
from fedssca.evaluate.confidence.evidence import Bets, Evidence, evidence_pass, signs_of
from fedssca.evaluate.confidence.noised import CERTAIN
from fedssca.evaluate.confidence.plain import claim_of, evidence_of
from fedssca.evaluate.passes import held_out
from fedssca.problem.problem import Problem
from fedssca.run.model import TrainedModel
from fedssca.run.model.evaluation import problem_again
from fedssca.run.privacy import noisy
from fedssca.run.promise.commit import Opening

__all__ = ["check_openings", "recount"]

Row = dict[str, Any]
NEAR = 1e-4
"""The relative difference of sums of losses between machines that is allowed."""


def check_openings(statement: Row, openings: Sequence[Opening]) -> dict[int, Opening]:
    """By the number of the holder what it shows; a UserError if it is not what it committed to."""
    names = [each["site"] for each in statement["commitments"]]
    found: dict[int, Opening] = {}
    for opening in openings:
        if opening.site not in names:
            raise UserError(
                f"{opening.site}: no holder of calibration rows of this certificate, which names "
                f"{', '.join(names)}"
            )
        number = names.index(opening.site)
        if opening.committed != statement["commitments"][number]:
            raise UserError(
                f"{opening.site}: these rows with this salt are not those that it committed "
                "itself to"
            )
        found[number] = opening
    return found


def recount(statement: Row, model: TrainedModel, shown: Mapping[int, Opening]) -> int:
    """Count again what the shown rows allow; returns how many claims that was.

    A claim about one site needs its rows, a claim about all rows those of all holders. A UserError
    at the first claim with other counts.
    """
    complete = len(shown) == len(statement["commitments"])
    counted, noised = 0, noisy(model.config.privacy)
    with model.own_precision():
        problem = problem_again(model)
        for claim in statement["claims"]:
            site = claim["site"]
            alone = site is not None and not model.blocks
            if (alone and site not in shown) or (not alone and not complete):
                continue
            parts = [shown[site]] if alone else [shown[i] for i in sorted(shown)]
            seen = _evidence(problem, model, claim, _joined(parts, model))
            counted += _check(claim, seen, statement, noised=noised)
    return counted


def _joined(parts: Sequence[Opening], model: TrainedModel) -> dict[str, np.ndarray]:
    """The rows of several holders: below each other, or side by side if they hold columns."""
    if not model.blocks:
        owners = np.repeat(np.arange(len(parts), dtype=np.int32), [part.rows for part in parts])
        names = parts[0].columns
        return {n: np.concatenate([part.columns[n] for part in parts]) for n in names} | {
            "client": owners
        }
    rows: dict[str, np.ndarray] = {}
    for part in parts:
        rows |= {name: values for name, values in part.columns.items() if name != "x"}
    x = np.empty((parts[0].rows, model.network.features), parts[0].columns["x"].dtype)
    for part, block in zip(parts, model.blocks, strict=True):
        x[:, list(block)] = part.columns["x"]
    return rows | {"x": x, "client": np.zeros(len(x), np.int32)}


def _evidence(
    problem: Problem, model: TrainedModel, claim: Row, rows: Mapping[str, np.ndarray]
) -> Evidence | None:
    batch, quantity = held_out(rows), problem.bounds[claim["constraint"]].quantity
    if batch is None:
        return None
    told = claim["evidence"]
    bets = Bets(1.0, np.zeros((len(signs_of(problem, batch)[quantity]), 2, 3)))
    if told is not None:
        seen = evidence_of(told)
        bets = Bets(seen.clip, seen.bets)
    w = problem.extended(jnp.asarray(model.w))
    return evidence_pass(problem, 0)(w, batch, {quantity: bets})[0][quantity]


def _check(claim: Row, seen: Evidence | None, statement: Row, *, noised: bool) -> bool:
    """Whether a claim could be counted again; `noised`: its counts carry noise."""
    limit = next(e for e in statement["limits"] if claim["constraint"] in e["constraints"])
    where = str(limit["title"])
    if claim["site"] is not None:
        where += f", at {statement['commitments'][claim['site']]['site']}"
    if seen is None:
        raise UserError(f"{where}: there are no rows, but the certificate counts some")
    if claim["evidence"] is None:  # only the site itself knows its counts
        if not seen.counted or noised:
            return False
        test = claim_of(claim)
        if (claim_p_value(test, seen) <= test.delta) != claim["passed"]:
            raise UserError(f"{where}: the certificate says something else than these rows")
        return True
    told = evidence_of(claim["evidence"])
    if told.noise:
        away = 2 * len(told.rows) * CERTAIN * told.noise
        if np.abs([told.rows - seen.rows, told.top - seen.top]).max() > away:
            raise UserError(
                f"{where}: the certificate counts {_words(told)}, these rows give {_words(seen)}, "
                "which noise does not explain"
            )
        return True
    pairs = [(told.rows, seen.rows, 0.0), (told.top, seen.top, 0.0 if told.counted else NEAR)]
    pairs += [] if told.counted else [(told.sums, seen.sums, NEAR)]
    for said, found, near in pairs:
        if not np.allclose(said, found, rtol=near, atol=max(near, 1e-6)):
            raise UserError(
                f"{where}: the certificate counts {_words(told)}, these rows give {_words(seen)}"
            )
    return True


def _words(seen: Evidence) -> str:
    """As in "3 of 40 against 5 of 60"."""
    return " against ".join(f"{k:g} of {n:g}" for k, n in seen.counts)
