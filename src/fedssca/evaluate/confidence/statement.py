"""The statement "every limit holds on new rows", tested on calibration rows.

Each side of each limit (and, with `each_site`, each of them at each site) is a claim with a
p-value. The statement is made only if every claim has a p-value of at most its delta. It is wrong
only if some claim is wrong and passes all the same, which has probability delta at most: an
intersection-union test needs no correction for the number of claims. (Corrections as Holm's are for
reporting the claims that pass while others fail; such parts of a statement are not reported as
certified here.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedssca.errors import UserError
from fedssca.evaluate.confidence.claims import Claim, ClaimResult, claim_p_value
from fedssca.evaluate.confidence.evidence import (
    Bets,
    Evidence,
    bets_for,
    evidence_pass,
    signs_of,
)
from fedssca.evaluate.confidence.margins import best_possible, what_is_missing
from fedssca.evaluate.confidence.means import Floats
from fedssca.evaluate.passes import held_out
from fedssca.evaluate.tally import Tally
from fedssca.problem.limits import StatedLimit, stated
from fedssca.problem.problem import Array, Problem

__all__ = ["Calibration", "TestedStatement", "Tester"]


class Calibration(NamedTuple):
    """Rows that were set aside before training, and what is to be promised with them."""

    rows: Mapping[str, np.ndarray]
    """Their columns, "client" among them: the number of the client that holds the row."""
    confidence: float | None = None
    """The probability with which the statement is true; None: as the bounds of the problem say."""
    each_site: bool = False
    """Every limit is promised for the new rows of every site, not only for those of all sites."""
    clip: float = 5.0
    """Losses of single rows above this count as this much."""
    clients: int = 1
    """The number of sites."""


class TestedStatement(NamedTuple):
    """The claims about one model."""

    claims: list[ClaimResult]

    @property
    def passed(self) -> bool:
        """Every claim may be made."""
        return all(claim.passed for claim in self.claims)


class Tester:
    """Tests statements about models on calibration rows."""

    def __init__(self, problem: Problem, given: Calibration) -> None:
        rows = held_out(given.rows)
        if rows is None:
            raise UserError(
                "there are no calibration rows: set data.calibration_fraction, or give more rows"
            )
        self._problem, self._given, self._rows = problem, given, rows
        self._deltas = _deltas(problem, given.confidence)
        self.limits = [limit for limit in stated(problem.bounds) if self.delta(limit) is not None]
        self._pass = evidence_pass(problem, given.clients if given.each_site else 0)
        weights = signs_of(problem, rows)
        self._no_bets = {
            limit.quantity: Bets(1.0, np.zeros((len(weights[limit.quantity]), 2, 3)))
            for limit in self.limits
        }
        self.notes = [
            f"{limit.title}: nothing is known of the range of its values, so it cannot be certified"
            for limit in self.limits
            if not limit.positive and not set(limit.constraints) & set(problem.stepwise)
        ]

    def delta(self, limit: StatedLimit) -> float | None:
        """The probability of error that a limit is allowed; None if it is not to be certified."""
        return self._deltas[limit.constraints[0]]

    @property
    def confidence(self) -> float:
        """The probability with which the whole statement is true."""
        return 1 - max((self.delta(limit) or 0.0 for limit in self.limits), default=0.0)

    def fewest_rows(self, w: Array) -> dict[str, Floats]:
        """How many calibration rows count for each mean of each quantity, at the poorest site."""
        return {
            limit.quantity: np.min([lines[limit.quantity].rows for lines in self._of(limit, w)], 0)
            for limit in self.limits
        }

    def _of(self, limit: StatedLimit, w: Array) -> list[dict[str, Evidence]]:
        """The evidence, without bets, of the rows that claims about a limit are about."""
        lines = self._pass(w, self._rows, self._no_bets)
        return lines[1:] if self._everyone(limit) else lines[:1]

    def _everyone(self, limit: StatedLimit) -> bool:
        return self._given.each_site and limit.client is None

    def impossible(self, w: Array) -> list[str]:
        """Which limits no model could be certified for, because there are too few rows."""
        rows, given = self.fewest_rows(w), self._given
        said = [
            best_possible(limit, rows[limit.quantity], self.delta(limit) or 0.05, given.clip)
            for limit in self.limits
        ]
        return [line for line in said if line]

    def what_is_missing(self, w: Array, statement: TestedStatement) -> list[str]:
        """Why a statement could not be made, and what it would take."""
        lines = self.impossible(w)
        return lines or [
            line for limit in self.limits for line in what_is_missing(limit, statement.claims)
        ]

    def test(self, w: Array, train: Tally) -> TestedStatement:
        """Test the statement about the model w, whose results on training rows are `train`."""
        least = min((self.delta(limit) or 1.0 for limit in self.limits), default=0.05)
        bets = bets_for(self.limits, train, self.fewest_rows(w), least, self._given.clip)
        lines = self._pass(w, self._rows, bets)
        claims = []
        for limit in self.limits:
            delta = self.delta(limit)
            assert delta is not None
            everyone = self._everyone(limit)
            for at, line in enumerate(lines):
                if (at > 0) != everyone:
                    continue
                for m in limit.constraints:
                    bound = self._problem.bounds[m]
                    sign = 1.0 if bound.high is not None else -1.0
                    value = bound.high if bound.high is not None else -(bound.low or 0.0)
                    claim = Claim(sign, float(value), delta, limit.whole)
                    seen = line[limit.quantity]
                    p = claim_p_value(claim, seen)
                    claims.append(ClaimResult(m, at - 1 if everyone else None, claim, p, seen))
        return TestedStatement(claims)


def _deltas(problem: Problem, confidence: float | None) -> list[float | None]:
    """The probability of error of every constraint; None for those that nothing is promised of."""
    if confidence is not None and not 0 < confidence < 1:
        raise UserError(f"confidence = {confidence}: it must lie between 0 and 1, such as 0.95")
    levels = [bound.confidence if confidence is None else confidence for bound in problem.bounds]
    return [
        None if level is None or m + 1 in problem.worst else 1 - level
        for m, level in enumerate(levels)
    ]
