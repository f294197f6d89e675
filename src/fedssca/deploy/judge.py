"""The server's evaluator: sites add up over their own rows, the server puts the sums together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns, Rows
from fedssca.deploy.crew import Away, Crew
from fedssca.deploy.engines.nvflare import Deployed
from fedssca.deploy.stages import algorithm_of, shapes_of, speaker_of
from fedssca.deploy.sums import SiteSums
from fedssca.deploy.table import Table
from fedssca.evaluate.evaluator import CHUNK, EvaluatedSums, Evaluator, evaluator_of, mean_cost
from fedssca.methods.algorithm import Request
from fedssca.problem.problem import Array
from fedssca.rounds.aggregate import Gathered
from fedssca.rounds.client import for_party
from fedssca.run.build import Job
from fedssca.run.schema import PrivacySettings

__all__ = ["joint_scores", "remote_judge"]


def remote_judge(crew: Crew, job: Job, held: int, sums: SiteSums) -> Evaluator:
    """An `Evaluator` whose rows are at the sites; `held`: test rows where all hold columns.

    Of sites that have gone nothing is added, and their rows do not count: the row says how many
    sites it is about.
    """
    asker = _Rows(crew, job, sums) if isinstance(job.clients, Rows) else _Columns(crew, job, held)
    judge = evaluator_of(job.problem, job.clients, lambda: asker.total, asker.sums, asker.slopes)
    hides = job.config.privacy != PrivacySettings()
    return judge._replace(
        row=lambda w: judge.row(w) | {"sites": len(crew.live)},
        losses=asker.losses if isinstance(asker, _Rows) and not hides else None,
    )


class _Rows:
    """Sites that hold rows: one letter each."""

    def __init__(self, crew: Crew, job: Job, sums: SiteSums) -> None:
        assert isinstance(job.clients, Rows)
        self._gather = sums.gather
        self._crew, self._sizes, self.total = crew, job.clients.sizes, job.clients.total
        self._due = {name: shapes_of(name, job, 0).answer for name in ("measure", "slope")}
        self._serial = count(1)

    def sums(self, w: Array) -> EvaluatedSums:
        """Terms and rates over the rows of all sites that answer."""
        (terms, train), test = self._all("measure", w)
        return EvaluatedSums(terms, train, test if _any(test) else None)

    def slopes(self, w: Array) -> np.ndarray:
        """Gradients of all terms."""
        return np.asarray(self._all("slope", w)["slopes"])

    def losses(self, w: Array) -> list[float | None]:
        """Each site's own mean cost, which every evaluation tells the server anyway."""
        return [self._loss(w, site) for site in range(len(self._sizes))]

    def _loss(self, w: Array, site: int) -> float | None:
        try:
            (_, train), _ = self._of("measure", w, [site]).total
        except Away:
            return None
        return mean_cost(np.asarray(train["cost"][0]))

    def _all(self, name: str, w: Array) -> Any:
        found = self._of(name, w, list(self._crew.live))
        self.total = sum(self._sizes[number] for number in found.who)
        return found.total

    def _of(self, name: str, w: Array, sites: list[int]) -> Gathered:
        asked, due = {"w": np.asarray(w)}, self._due[name]
        return self._gather(name, next(self._serial), asked, sites, due, double=True)


class _Columns:
    """Parties that hold columns: chunk by chunk, h_i go to the one who has labels."""

    def __init__(self, crew: Crew, job: Job, held: int) -> None:
        assert isinstance(job.clients, Columns)
        self._job, self._held = job, held
        self.total = job.clients.total
        self._slopes = Deployed(crew, "slope", job, algorithm_of("slope", job))
        self._table = Table(crew, "measure", job)
        self._serial = count(1)

    def sums(self, w: Array) -> EvaluatedSums:
        """Terms and rates over all rows, as the party with labels added them."""
        terms, train = _added([self._chunk(w, rows, 0) for rows in _chunks(self.total)])
        test = [self._chunk(w, rows, 1)[1] for rows in _chunks(self._held)]
        return EvaluatedSums(terms, train, _added(test) if test else None)

    def slopes(self, w: Array) -> np.ndarray:
        """Gradients of all terms."""
        total: Any = 0.0
        for rows in _chunks(self.total):
            request = Request(jnp.asarray(next(self._serial), jnp.int32), w)
            found = self._slopes.sweep(request, rows).vectors["gradient"]
            total = total + np.asarray(found, float) * len(rows)
        return np.asarray(total)

    def _chunk(self, w: Array, rows: np.ndarray, test: int) -> Any:
        part = {"test": np.asarray(test, np.int32)}
        return _together(self._table, self._job, w, rows, next(self._serial), part)


def joint_scores(crew: Crew, job: Job, w: Array, rows: int) -> np.ndarray:
    """Scores of new rows that parties hold together, as the one who speaks for all adds them."""
    table = Table(crew, "predict", job)
    parts = [
        _together(table, job, w, chunk, serial, {})["scores"]
        for serial, chunk in enumerate(_chunks(rows), 1)
    ]
    return np.concatenate(parts)


def _together(
    table: Table, job: Job, w: Array, rows: np.ndarray, serial: int, more: dict[str, Any]
) -> Any:
    """One exchange on a chunk of rows; what the party that speaks for all answers."""
    split = job.problem.vertical
    point = jax.device_get(Request(jnp.asarray(serial, jnp.int32), w))
    assert split is not None
    assert isinstance(job.clients, Columns)
    asked = {
        number: for_party(split, number, point, rows) | more for number in range(job.clients.count)
    }
    for phase in table.phases:
        found = table.phase(phase, serial, asked)
    return found[speaker_of(job.clients)]


def _chunks(rows: int) -> Iterator[np.ndarray]:
    for begin in range(0, rows, CHUNK):
        yield np.arange(begin, min(begin + CHUNK, rows), dtype=np.int32)


def _added(parts: list[Any]) -> Any:
    """Leaf by leaf, in the order of the sites, in double precision."""
    return jax.tree.map(lambda *leaves: sum(np.asarray(leaf, float) for leaf in leaves), *parts)


def _any(rates: Any) -> bool:
    return any(np.any(leaf) for leaf in jax.tree.leaves(rates))
