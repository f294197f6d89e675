"""The statement "every limit holds on new rows", tested on calibration rows.

Each side of each limit (and, with `each_site`, each of them at each site) is a claim with a
p-value. The statement is made only if every claim has a p-value of at most its delta. It is wrong
only if some claim is wrong and passes all the same, which has probability delta at most: an
intersection-union test needs no correction for the number of claims. (Corrections as Holm's are for
reporting the claims that pass while others fail; such parts of a statement are not reported as
certified here.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedssca.errors import UserError
from fedssca.evaluate.confidence.claims import Claim, ClaimResult, claim_p_value
from fedssca.evaluate.confidence.counts import CountNoise, count_sums, counted_evidence
from fedssca.evaluate.confidence.evidence import (
    Bets,
    Evidence,
    bets_for,
    evidence_pass,
    signs_of,
)
from fedssca.evaluate.confidence.margins import best_possible, best_with_noise, what_is_missing
from fedssca.evaluate.confidence.means import Floats
from fedssca.evaluate.passes import held_out
from fedssca.evaluate.tally import Tally
from fedssca.problem.limits import StatedLimit, stated
from fedssca.problem.problem import Array, Batch, Problem

__all__ = ["Calibration", "EvidenceLines", "Promise", "TestedStatement", "Tester"]


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
    sizes: tuple[int, ...] = ()
    """The number of calibration rows of each site; empty: they are counted in `rows`."""
    noise: CountNoise | None = None
    """The noise on all counts of these rows; None: they are exact."""

    def tester(self, problem: Problem) -> Tester:
        """What tests models on these rows."""
        return Tester(problem, self)


class Promise(Protocol):
    """What is to be promised, and what tests it, wherever the calibration rows are."""

    @property
    def each_site(self) -> bool:
        """As in `Calibration`."""

    def tester(self, problem: Problem) -> Tester:
        """What tests models on the calibration rows."""


class TestedStatement(NamedTuple):
    """The claims about one model."""

    claims: list[ClaimResult]
    sites_passed: tuple[int, int] | None = None
    """Where sites test their own claims and tell nothing else: how many of how many passed."""

    @property
    def passed(self) -> bool:
        """Every claim may be made."""
        if self.sites_passed is not None:
            return self.sites_passed[0] == self.sites_passed[1]
        return all(claim.passed for claim in self.claims)


EvidenceLines = Callable[[Array, Mapping[str, Bets]], list[dict[str, Evidence]]]
"""(w, bets) -> the evidence of all calibration rows, then that of every site, by quantity."""


class Tester:
    """Tests statements about models on calibration rows."""

    def __init__(
        self, problem: Problem, given: Calibration, lines: EvidenceLines | None = None
    ) -> None:
        """With `lines` the rows are elsewhere: `given` has their columns and their numbers only."""
        rows = held_out(given.rows)
        if rows is None:
            raise UserError(
                "there are no calibration rows: set data.calibration_fraction, or give more rows"
            )
        self._problem, self._given = problem, given
        self._sizes = given.sizes or np.bincount(
            np.asarray(rows["client"]), minlength=given.clients
        )
        self._deltas = _deltas(problem, given.confidence)
        self.limits: list[StatedLimit] = [
            limit for limit in stated(problem.bounds) if self.delta(limit) is not None
        ]
        self.signs: dict[str, Floats] = signs_of(problem, rows)
        self._no_bets = self.bets(
            {name: np.zeros((len(signs), 2, 3)) for name, signs in self.signs.items()}
        )
        clients = given.clients if given.each_site else 0
        if lines is None and given.noise is not None:
            lines = self._with_noise(given.noise, rows, clients)
        own = evidence_pass(problem, clients)
        self._lines = lines or (lambda w, bets: own(w, rows, bets))

    def _with_noise(self, noise: CountNoise, rows: Batch, clients: int) -> EvidenceLines:
        """Counts of the rows with simulated noise."""
        clips, each = self.clips, self._given.each_site
        sums = count_sums(self._problem, clips, clients)

        def lines(w: Array, bets: Mapping[str, Bets]) -> list[dict[str, Evidence]]:
            del bets
            exact = {name: np.asarray(own, float) for name, own in sums(w, rows).items()}
            found = []
            for line in range(1 + clients):
                own = noise.added(w, {name: all_[line] for name, all_ in exact.items()}, line, each)
                found.append(self.counted(own, line))
            return found

        return lines

    @property
    def noise(self) -> CountNoise | None:
        """The noise on all counts; then one model is tested, and nothing is asked before."""
        return self._given.noise

    def counted(self, sums: Mapping[str, Any], line: int = 0) -> dict[str, Evidence]:
        """The evidence in noised sums of all rows (line 0), or of one site."""
        assert self.noise is not None
        deviation = self.noise.on_line(line, self._given.each_site)
        return counted_evidence(self.limits, self.signs, self.clips, sums, deviation)

    @property
    def clips(self) -> dict[str, float]:
        """The clip of every quantity that is certified."""
        return {name: bets.clip for name, bets in self._no_bets.items()}

    @property
    def clip(self) -> float:
        """Losses of single rows above this count as this much."""
        return self._given.clip

    def delta(self, limit: StatedLimit) -> float | None:
        """The probability of error that a limit is allowed; None if it is not to be certified."""
        return self._deltas[limit.constraints[0]]

    @property
    def confidence(self) -> float:
        """The probability with which the whole statement is true."""
        return 1 - max((self.delta(limit) or 0.0 for limit in self.limits), default=0.0)

    def rows(self, w: Array) -> dict[str, Floats]:
        """How many calibration rows of all sites count for each mean of each quantity."""
        whole = self._lines(w, self._no_bets)[0]
        return {limit.quantity: whole[limit.quantity].rows for limit in self.limits}

    def fewest_rows(self, w: Array) -> dict[str, Floats]:
        """How many calibration rows count for each mean of each quantity, at the poorest site."""
        return {
            limit.quantity: np.min([lines[limit.quantity].rows for lines in self._of(limit, w)], 0)
            for limit in self.limits
        }

    def expected_rows(self, train: Tally) -> dict[str, Floats]:
        """How many calibration rows count for each mean, as the training rows let expect.

        What is decided before testing (the path, the bets) uses this and the numbers of calibration
        rows only: the numbers of their classes and groups are part of what is tested.
        """
        total = max(float(mean[0, 1]) for means in train.sums.train.values() for mean in means)
        found = {}
        for limit in self.limits:
            known = train.estimate(train.sums.train, limit.quantity)
            assert known is not None
            rows = min(self._sizes) if self.is_of_every_site(limit) else sum(self._sizes)
            found[limit.quantity] = float(rows) * known.sums[:, 1] / total
        return found

    def _of(self, limit: StatedLimit, w: Array) -> list[dict[str, Evidence]]:
        """The evidence, without bets, of the rows that claims about a limit are about."""
        lines = self._lines(w, self._no_bets)
        return lines[1:] if self.is_of_every_site(limit) else lines[:1]

    def is_of_every_site(self, limit: StatedLimit) -> bool:
        """Whether a limit is promised for the new rows of every single site."""
        return self._given.each_site and limit.client is None

    def impossible(self, w: Array) -> list[str]:
        """Which limits no model could be certified for, because there are too few rows."""
        given = self._given
        if given.noise is not None:
            return self._impossible_with(given.noise)
        rows = self.fewest_rows(w)
        said = [
            best_possible(limit, rows[limit.quantity], self.delta(limit) or 0.05, given.clip)
            for limit in self.limits
        ]
        return [line for line in said if line]

    def _impossible_with(self, noise: CountNoise) -> list[str]:
        """The same where counts carry noise, from the numbers of rows that are to be expected."""
        lines = []
        for limit in self.limits:
            deviation = noise.on_line(0, self.is_of_every_site(limit))
            for m in limit.constraints:
                rows = self.likely_rows(limit, noise)
                lines.append(best_with_noise(limit, self.claim(limit, m), rows, deviation))
        return list(dict.fromkeys(line for line in lines if line))

    def likely_rows(self, limit: StatedLimit, noise: CountNoise) -> Floats:
        """How many calibration rows of each mean are to be expected, without counting them."""
        many = min(self._sizes) if self.is_of_every_site(limit) else sum(self._sizes)
        known = noise.shares.get(limit.quantity, np.ones(len(self.signs[limit.quantity])))
        return float(many) * np.where(known > 0, known, 1.0)

    def what_is_missing(self, w: Array, statement: TestedStatement) -> list[str]:
        """Why a statement could not be made, and what it would take."""
        lines = self.impossible(w)
        return lines or [
            line for limit in self.limits for line in what_is_missing(limit, statement.claims)
        ]

    def test(self, w: Array, train: Tally) -> TestedStatement:
        """Test the statement about the model w, whose results on training rows are `train`."""
        return TestedStatement(self.claims(self._lines(w, self.bets_on(train))))

    def test_alone(self, w: Array) -> TestedStatement:
        """Test the statement about the only model that is tested, on counts with noise."""
        return TestedStatement(self.claims(self._lines(w, self._no_bets)))

    def bets(self, theta: Mapping[str, Floats]) -> dict[str, Bets]:
        """The bets of every limit's quantity from theta, each with its clip."""
        return {
            limit.quantity: Bets(self._given.clip if limit.positive else 1.0, theta[limit.quantity])
            for limit in self.limits
        }

    def bets_on(self, train: Tally) -> dict[str, Bets]:
        """The bets on the quantities of a model whose results on training rows are `train`."""
        least = min((self.delta(limit) or 1.0 for limit in self.limits), default=0.05)
        return bets_for(self.limits, train, self.expected_rows(train), least, self._given.clip)

    def claims(self, lines: Sequence[Mapping[str, Evidence]]) -> list[ClaimResult]:
        """All claims, tested on the evidence of all rows, then that of every site."""
        claims = []
        for limit in self.limits:
            delta = self.delta(limit)
            assert delta is not None
            everyone = self.is_of_every_site(limit)
            for at, line in enumerate(lines):
                if (at > 0) != everyone:
                    continue
                for m in limit.constraints:
                    claim = self.claim(limit, m)
                    seen = line[limit.quantity]
                    p = claim_p_value(claim, seen)
                    claims.append(ClaimResult(m, at - 1 if everyone else None, claim, p, seen))
        return claims

    def claim(self, limit: StatedLimit, m: int) -> Claim:
        """What the side m of a limit claims."""
        bound, delta = self._problem.bounds[m], self.delta(limit)
        assert delta is not None
        sign = 1.0 if bound.high is not None else -1.0
        value = bound.high if bound.high is not None else -(bound.low or 0.0)
        return Claim(sign, float(value), delta, limit.whole, limit.positive)


def _deltas(problem: Problem, confidence: float | None) -> list[float | None]:
    """The probability of error of every constraint; None for those that nothing is promised of."""
    if confidence is not None and not 0 < confidence < 1:
        raise UserError(f"confidence = {confidence}: it must lie between 0 and 1, such as 0.95")
    levels = [bound.confidence if confidence is None else confidence for bound in problem.bounds]
    return [
        None if level is None or m + 1 in problem.worst else 1 - level
        for m, level in enumerate(levels)
    ]
