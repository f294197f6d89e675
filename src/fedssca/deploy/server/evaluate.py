"""The server's evaluator: sites add up over their own rows, and the server joins the sums."""

from __future__ import annotations

from itertools import count
from typing import Any

import jax
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.deploy.server.column_rounds import ColumnRounds
from fedssca.deploy.server.row_rounds import RowRounds
from fedssca.deploy.server.sites import Sites, SitesMissing
from fedssca.deploy.stages import chunks
from fedssca.evaluate.evaluator import EvaluatedSums, Evaluator, evaluator_of
from fedssca.evaluate.passes import about_one_client
from fedssca.evaluate.tally import SHARED_ROWS, TallySums
from fedssca.privacy.noise.evaluation import sensible
from fedssca.problem.problem import Array
from fedssca.rounds.aggregate import Adder, Gathered
from fedssca.run.build import Job
from fedssca.run.privacy import hides_clients

__all__ = ["added", "joint_scores", "site_evaluator"]


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
    noise = job.noise.evaluation if job.noise is not None else None
    if noise is not None:
        most = noise.value_clip
        found = evaluator_of(
            job.problem,
            job.clients,
            lambda: over.total,
            lambda w: sensible(job.problem, over.sums(w), most),
            None,
            None,
        )
    else:
        found = evaluator_of(
            job.problem, job.clients, lambda: over.total, over.sums, over.slopes, over.tally
        )
    return found._replace(row=lambda w: found.row(w) | {"sites": len(sites.live)})


class RowSums:
    """Sums over sites that hold rows: one envelope to each."""

    def __init__(self, sites: Sites, job: Job, adder: Adder) -> None:
        assert isinstance(job.clients, Rows)
        self._sites, self._sizes = sites, job.clients.sizes
        self.total = job.clients.total
        """The number of rows that the last sums are over."""
        stages = ("measure", "tally", "slope")
        self._stages = {name: RowRounds(sites, name, job, adder) for name in stages}
        self._hidden, self._alone = hides_clients(job.config), about_one_client(job.problem)
        self._serial = count(1)
        self._known: dict[str, tuple[bytes, Gathered]] = {}
        """For each stage the last point and its sums: hidden sums are asked for once, because two
        of them at one point, over different sites, would show what single sites sent."""

    def sums(self, w: Array) -> EvaluatedSums:
        """Terms and rates over the rows of all sites that answer."""
        (terms, train), test = self._over_all("measure", w)
        return EvaluatedSums(terms, train, _if_any(test))

    def slopes(self, w: Array) -> np.ndarray:
        """The gradients of all terms."""
        return np.asarray(self._over_all("slope", w)["slopes"])

    def tally(self, w: Array) -> TallySums:
        """The sums of all sites together and, unless they are hidden, of each by itself."""
        if self._hidden:
            found = self._over_all("tally", w)
            return TallySums(found["train"], _if_any(found["test"]), hidden=self._hidden)
        each = [self._one_site(w, site) for site in range(len(self._sizes))]
        here = [found for found in each if found is not None]
        if not here:
            raise SitesMissing([], "no site is left to evaluate the model")
        none = jax.tree.map(np.zeros_like, here[0])
        whole, each = added(here), [none if found is None else found for found in each]
        test = _if_any(whole["test"])
        return TallySums(
            whole["train"],
            test,
            self._one_line_each([found["train"] for found in each]),
            test and self._one_line_each([found["test"] for found in each]),
        )

    def _one_line_each(self, sums: list[Any]) -> Any:
        """The first lines of the sums of all sites, one below the other."""
        return {
            name: [
                np.stack([np.asarray(own[name][j])[0] for own in sums]) for j in range(len(rates))
            ]
            for name, rates in sums[0].items()
            if name not in self._alone
        }

    def _one_site(self, w: Array, site: int) -> Any:
        """What a site adds up, which the server could compute from any evaluation."""
        try:
            return self._over("tally", w, [site]).total
        except SitesMissing:
            return None

    def _over_all(self, stage: str, w: Array) -> Any:
        point = np.asarray(w).tobytes()
        if self._hidden and self._known.get(stage, (b"",))[0] == point:
            found = self._known[stage][1]
        else:
            found = self._over(stage, w, list(self._sites.live))
            self._known[stage] = (point, found)
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
        self._tallies = ColumnRounds(sites, "tally", job)
        self._serial = count(1)

    def sums(self, w: Array) -> EvaluatedSums:
        """Terms and rates over all rows, as the speaker added them."""
        stage = self._measures
        terms, train = added([self._chunk(stage, w, rows, 0) for rows in chunks(self.total)])
        test = [self._chunk(stage, w, rows, 1)[1] for rows in chunks(self._held)]
        return EvaluatedSums(terms, train, added(test) if test else None)

    def tally(self, w: Array) -> TallySums:
        """The sums over all rows and over groups of them; the parties share all rows."""
        stage = self._tallies
        train = added([self._chunk(stage, w, rows, 0) for rows in chunks(self.total)])
        test = [self._chunk(stage, w, rows, 1) for rows in chunks(self._held)]
        return TallySums(train, added(test) if test else None, hidden=SHARED_ROWS)

    def slopes(self, w: Array) -> np.ndarray:
        """The gradients of all terms."""
        total: Any = 0.0
        for rows in chunks(self.total):
            found = self._slopes.message_on(next(self._serial), w, rows).vectors["gradient"]
            total = total + np.asarray(found, float) * len(rows)
        return np.asarray(total)

    def _chunk(self, stage: ColumnRounds, w: Array, rows: np.ndarray, test: int) -> Any:
        which = np.asarray(test, np.int32)
        return stage.answer_on(next(self._serial), w, rows, test=which)


def joint_scores(sites: Sites, job: Job, w: Array, rows: int) -> np.ndarray:
    """The scores of new rows that parties hold together, as the speaker computes them."""
    rounds = ColumnRounds(sites, "predict", job)
    parts = [
        rounds.answer_on(serial, w, chunk)["scores"] for serial, chunk in enumerate(chunks(rows), 1)
    ]
    return np.concatenate(parts)


def added(parts: list[Any]) -> Any:
    """The sum of trees leaf by leaf, in order and in double precision."""
    return jax.tree.map(lambda *leaves: sum(np.asarray(leaf, float) for leaf in leaves), *parts)


def _if_any(sums: Any) -> Any:
    """The sums; None if all of them are 0, because there are no rows."""
    return sums if any(np.any(leaf) for leaf in jax.tree.leaves(sums)) else None
