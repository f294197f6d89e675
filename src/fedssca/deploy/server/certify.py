"""Limits on new rows at the server: it tests claims on sums of calibration rows, which sites keep.

pooled       the sums of all sites are tested; parties with columns: what the speaker adds up
each_site    every site tests its own claims, and the server learns how many sites passed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np

from fedssca.data import Rows
from fedssca.deploy.evidence import calibration_noise, keeps_own, own_tester, without_rows
from fedssca.deploy.server.column_rounds import ColumnRounds
from fedssca.deploy.server.evaluate import added
from fedssca.deploy.server.row_rounds import RowRounds
from fedssca.deploy.server.sites import Sites
from fedssca.deploy.stages import chunks
from fedssca.evaluate.confidence import Calibration, Tester
from fedssca.evaluate.confidence.evidence import (
    Bets,
    Evidence,
    bet_arrays,
    joined_evidence,
    order_of,
)
from fedssca.evaluate.confidence.means import Floats
from fedssca.evaluate.confidence.statement import TestedStatement
from fedssca.evaluate.tally import Tally
from fedssca.problem.problem import Array, Problem
from fedssca.rounds.aggregate import Adder
from fedssca.run.aim import count_noise
from fedssca.run.build import Job

__all__ = ["SiteCalibration"]

Question = Callable[[Array, dict[str, np.ndarray]], Any]
"""(w, theta) -> the sum of what the sites answer."""


class SiteCalibration:
    """The `Promise` of a run whose calibration rows are with the sites."""

    def __init__(self, sites: Sites, job: Job, calibration: list[int], adder: Adder) -> None:
        """`calibration` are the numbers of calibration rows, as in the census."""
        self._job, self._calibration = job, calibration
        self.each_site = job.config.problem.certify == "each_site"
        asked: Question
        if isinstance(job.clients, Rows):
            asked = _RowQuestions(sites, job, adder).ask
        else:
            asked = _ColumnQuestions(sites, job, calibration[0]).ask
        self._ask = _once(asked)

    def tester(self, problem: Problem) -> Tester:
        """What tests models with the help of the sites."""
        del problem  # the job has the same
        job, given = self._job, without_rows(self._job, self._calibration)
        if (noise := calibration_noise(job)) is not None:
            rows = sum(self._calibration)
            given = given._replace(noise=count_noise(job.problem, job.clients, noise, rows))
        if keeps_own(job):
            return OwnTester(job, given, self._ask)
        return Tester(job.problem, given, self._lines)

    def _lines(self, w: Array, bets: Mapping[str, Bets]) -> list[dict[str, Evidence]]:
        if calibration_noise(self._job) is not None:
            given = Tester(self._job.problem, without_rows(self._job, self._calibration))
            line = given.counted(self._ask(w, {})["sums"])
            return [line, line] if self.each_site else [line]
        signs = own_tester(self._job).signs
        sums = self._ask(w, bet_arrays(signs, bets, w.dtype))["sums"]
        line = joined_evidence(sums, signs, bets, w.dtype)
        return [line, line] if self.each_site else [line]  # parties with columns share all rows


class OwnTester(Tester):
    """Lets every site test its own claims, and counts those that pass."""

    def __init__(self, job: Job, given: Calibration, ask: Question) -> None:
        assert isinstance(job.clients, Rows)
        super().__init__(job.problem, given)
        self._ask, self._sites, self._type = ask, job.clients.count, job.problem.start.dtype
        self._names, self._failed = job.clients.names, list[str]()

    def rows(self, w: Array) -> dict[str, Floats]:
        """How many calibration rows of all sites count for each mean of each quantity."""
        found = self._answers(w, self._no_bets)["rows"]
        return {
            name: np.rint(np.asarray(own, float)[order_of(self.signs[name])])
            for name, own in found.items()
        }

    def impossible(self, w: Array) -> list[str]:
        """Which limits some site could not certify for any model."""
        if self.noise is not None:
            return super().impossible(w)
        able = np.rint(np.asarray(self._answers(w, self._no_bets)["able"], float)).astype(int)
        return [
            f"{limit.title}: {self._sites - own} of {self._sites} sites have too few calibration "
            "rows to certify it for any model (data.calibration_fraction)"
            for limit, own in zip(self.limits, able, strict=True)
            if own < self._sites
        ]

    def test(self, w: Array, train: Tally) -> TestedStatement:
        """Let the sites test the statement about the model w."""
        return self._outcome(self._answers(w, self.bets_on(train)))

    def test_alone(self, w: Array) -> TestedStatement:
        """Let the sites test the statement about the only model, on their noised counts."""
        return self._outcome(self._answers(w, self._no_bets))

    def _outcome(self, found: Any) -> TestedStatement:
        failed = np.flatnonzero(np.rint(np.asarray(found["failed"], float)))
        self._failed = [self._names[number] for number in failed]
        return TestedStatement([], (round(float(found["passed"])), self._sites))

    def what_is_missing(self, w: Array, statement: TestedStatement) -> list[str]:
        """How many sites could not make the statement."""
        passed, sites = statement.sites_passed or (0, self._sites)
        return [
            *self.impossible(w),
            f"not certified: {passed} of {sites} sites could make the statement about their own "
            "rows; every site knows its own bounds" + self._named(),
        ]

    def _named(self) -> str:
        """The sites that did not pass the last test and want to be named."""
        return f"; not passed: {', '.join(self._failed)}" if self._failed else ""

    def _answers(self, w: Array, bets: Mapping[str, Bets]) -> Any:
        theta = {} if self.noise is not None else bet_arrays(self.signs, bets, self._type)
        return self._ask(w, theta)


def _once(ask: Question) -> Question:
    """`ask`, which asks no question twice."""
    known: dict[bytes, Any] = {}

    def asked(w: Array, theta: dict[str, np.ndarray]) -> Any:
        parts = [np.asarray(w), *(theta[name] for name in sorted(theta))]
        key = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
        if key not in known:
            known[key] = ask(w, theta)
        return known[key]

    return asked


class _RowQuestions:
    """Questions to sites that hold rows; all of them must answer."""

    def __init__(self, sites: Sites, job: Job, adder: Adder) -> None:
        self._sites, self._serial = sites, count(1)
        self._rounds = RowRounds(sites, "evidence", job, adder)

    def ask(self, w: Array, theta: dict[str, np.ndarray]) -> Any:
        everyone, serial = list(range(len(self._sites.names))), next(self._serial)
        published = {"w": np.asarray(w), "theta": theta}
        found = self._rounds.gather(serial, published, everyone, double=True)
        self._sites.check_all(everyone, dict.fromkeys(found.who), serial)
        return found.total


class _ColumnQuestions:
    """Questions to parties that hold columns, chunk by chunk of their calibration rows."""

    def __init__(self, sites: Sites, job: Job, rows: int) -> None:
        self._rows, self._serial = rows, count(1)
        self._rounds = ColumnRounds(sites, "evidence", job)

    def ask(self, w: Array, theta: dict[str, np.ndarray]) -> Any:
        return added(
            [
                self._rounds.answer_on(next(self._serial), w, rows, theta=theta)
                for rows in chunks(self._rows)
            ]
        )
