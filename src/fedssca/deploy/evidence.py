"""Limits on new rows in a deployment: what the server asks the sites, and what they answer.

The server asks with a model w and bets theta. Sites with rows answer with the sums of their own
calibration rows (`evaluate.confidence.evidence`), and with theta = 0 only with numbers of rows. If
limits are certified at each site, a site tests its own claims and tells no sums, but

    passed    1 if it may make every claim about its rows, otherwise 0
    able      for each limit 1 if it has enough rows to certify any model, otherwise 0
    rows      the numbers of its rows that count for each mean of each quantity
    failed    at its own place 1 if it has not passed and wants to be named, otherwise zeros

which are added up over the sites, under masks where the run hides sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedssca.data import Rows
from fedssca.evaluate.confidence.evidence import COLUMNS, Bets, order_of
from fedssca.evaluate.confidence.path import MOST_TESTED
from fedssca.evaluate.confidence.statement import Calibration, Tester
from fedssca.run.build import Job

__all__ = [
    "MOST_MODELS",
    "bets_of",
    "clips",
    "evidence_shapes",
    "keeps_own",
    "own_tester",
    "without_rows",
]

MOST_MODELS = MOST_TESTED + 1
"""The number of models that calibration rows may be asked about in a run: those of the path, and
the trained one."""


def keeps_own(job: Job) -> bool:
    """Whether every site tests its own claims, so that nobody else learns its sums."""
    return isinstance(job.clients, Rows) and job.config.problem.certify == "each_site"


def without_rows(job: Job, sizes: Sequence[int]) -> Calibration:
    """What is promised with rows of which only the columns and the numbers are known."""
    like = {name: np.asarray(column[:1]) for name, column in job.clients.columns.items()}
    like["client"] = np.zeros(1, np.int32)
    each = job.config.problem.certify == "each_site"
    return Calibration(like, None, each, job.config.problem.clip, len(sizes), tuple(sizes))


def own_tester(job: Job) -> Tester:
    """What tests the limits of a run on the rows of one site."""
    return Tester(job.problem, without_rows(job, [1])._replace(each_site=False))


def clips(tester: Tester) -> dict[str, float]:
    """The clip of every quantity that is certified."""
    none = {name: np.zeros((len(signs), 2, 3)) for name, signs in tester.signs.items()}
    return {name: bets.clip for name, bets in tester.bets(none).items()}


def bets_of(tester: Tester, theta: dict[str, Any]) -> dict[str, Bets]:
    """The bets whose arrays, in the order of the measures, are `theta`."""
    return tester.bets(
        {
            name: np.asarray(each, float)[order_of(tester.signs[name])]
            for name, each in theta.items()
        }
    )


def evidence_shapes(job: Job, dtype: Any) -> tuple[Any, Any]:
    """The shapes of theta, and of what a site answers."""
    tester = own_tester(job)
    means = {limit.quantity: len(tester.signs[limit.quantity]) for limit in tester.limits}
    theta = {name: jax.ShapeDtypeStruct((j, 2, 3), dtype) for name, j in means.items()}
    if not keeps_own(job):
        sums = {name: jax.ShapeDtypeStruct((j, COLUMNS), dtype) for name, j in means.items()}
        return theta, {"sums": sums}
    return theta, {
        "passed": jax.ShapeDtypeStruct((), dtype),
        "failed": jax.ShapeDtypeStruct((job.clients.count,), dtype),
        "able": jax.ShapeDtypeStruct((len(tester.limits),), dtype),
        "rows": {name: jax.ShapeDtypeStruct((j,), dtype) for name, j in means.items()},
    }
