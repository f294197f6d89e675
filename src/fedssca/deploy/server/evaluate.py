"""The server's evaluator: sites add up over their own rows, and the server joins the sums."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import jax
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.deploy.server.column_rounds import ColumnRounds
from fedssca.deploy.server.row_rounds import RowRounds
from fedssca.deploy.server.sites import Sites, SitesMissing
from fedssca.evaluate.evaluator import CHUNK, EvaluatedSums, Evaluator, evaluator_of, mean_cost
from fedssca.problem.problem import Array
from fedssca.rounds.aggregate import Adder
from fedssca.run.build import Job
from fedssca.run.schema import PrivacySettings

__all__ = ["joint_scores", "site_evaluator"]


def site_evaluator(sites: Sites, job: Job, held: int, adder: Adder) -> Evaluator:
    """An `Evaluator` of rows that are at the sites.

    `held` is the number of test rows where parties hold columns, and `adder` the server's half of
    the sums where sites hold rows. A row of the result says how many sites it covers: sites that
    are gone, and their rows, do not count.
    """
    over: RowSums | ColumnSums
    over = (
        RowSums(sites, job, adder)
        if isinstance(job.clients, Rows)
        else ColumnSums(sites, job, held)
    )
    found = evaluator_of(job.problem, job.clients, lambda: over.total, over.sums, over.slopes)
    hides = job.config.privacy != PrivacySettings()
    return found._replace(
        row=lambda w: found.row(w) | {"sites": len(sites.live)},
        losses=over.losses if isinstance(over, RowSums) and not hides else None,
    )


class RowSums:
    """Sums over sites that hold rows: one envelope to each."""

    def __init__(self, sites: Sites, job: Job, adder: Adder) -> None:
        assert isinstance(job.clients, Rows)
        self._sites, self._sizes = sites, job.clients.sizes
        self.total = job.clients.total
        """The number of rows that the last sums are over."""
        self._stages = {name: RowRounds(sites, name, job, adder) for name in ("measure", "slope")}
        self._serial = count(1)

    def sums(self, w: Array) -> EvaluatedSums:
        """Terms and rates over the rows of all sites that answer."""
        (terms, train), test = self._over_all("measure", w)
        there = any(np.any(leaf) for leaf in jax.tree.leaves(test))
        return EvaluatedSums(terms, train, test if there else None)

    def slopes(self, w: Array) -> np.ndarray:
        """The gradients of all terms."""
        return np.asarray(self._over_all("slope", w)["slopes"])

    def losses(self, w: Array) -> list[float | None]:
        """The mean cost at each site; the server could compute it from any evaluation."""
        return [self._loss(w, site) for site in range(len(self._sizes))]

    def _loss(self, w: Array, site: int) -> float | None:
        try:
            (_, train), _ = self._over("measure", w, [site]).total
        except SitesMissing:
            return None
        return mean_cost(np.asarray(train["cost"][0]))

    def _over_all(self, stage: str, w: Array) -> Any:
        found = self._over(stage, w, list(self._sites.live))
        self.total = sum(self._sizes[number] for number in found.who)
        return found.total

    def _over(self, stage: str, w: Array, asked: list[int]) -> Any:
        published = {"w": np.asarray(w)}
        return self._stages[stage].gather(next(self._serial), published, asked, double=True)


class ColumnSums:
    """Sums with parties that hold columns: chunk by chunk, the h_i go to the speaker."""

    def __init__(self, sites: Sites, job: Job, held: int) -> None:
        assert isinstance(job.clients, Columns)
        self._held, self.total = held, job.clients.total
        self._slopes = ColumnRounds(sites, "slope", job)
        self._measures = ColumnRounds(sites, "measure", job)
        self._serial = count(1)

    def sums(self, w: Array) -> EvaluatedSums:
        """Terms and rates over all rows, as the speaker added them."""
        terms, train = _added([self._chunk(w, rows, 0) for rows in _chunks(self.total)])
        test = [self._chunk(w, rows, 1)[1] for rows in _chunks(self._held)]
        return EvaluatedSums(terms, train, _added(test) if test else None)

    def slopes(self, w: Array) -> np.ndarray:
        """The gradients of all terms."""
        total: Any = 0.0
        for rows in _chunks(self.total):
            found = self._slopes.message_on(next(self._serial), w, rows).vectors["gradient"]
            total = total + np.asarray(found, float) * len(rows)
        return np.asarray(total)

    def _chunk(self, w: Array, rows: np.ndarray, test: int) -> Any:
        which = np.asarray(test, np.int32)
        return self._measures.answer_on(next(self._serial), w, rows, test=which)


def joint_scores(sites: Sites, job: Job, w: Array, rows: int) -> np.ndarray:
    """The scores of new rows that parties hold together, as the speaker computes them."""
    rounds = ColumnRounds(sites, "predict", job)
    parts = [
        rounds.answer_on(serial, w, chunk)["scores"]
        for serial, chunk in enumerate(_chunks(rows), 1)
    ]
    return np.concatenate(parts)


def _chunks(rows: int) -> Iterator[np.ndarray]:
    for begin in range(0, rows, CHUNK):
        yield np.arange(begin, min(begin + CHUNK, rows), dtype=np.int32)


def _added(parts: list[Any]) -> Any:
    """The sum of trees leaf by leaf, in order and in double precision."""
    return jax.tree.map(lambda *leaves: sum(np.asarray(leaf, float) for leaf in leaves), *parts)
