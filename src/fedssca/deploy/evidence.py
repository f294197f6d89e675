"""Limits on new rows in a deployment: what the server asks the sites, and what they answer.

The server asks with a model w and bets theta. Sites with rows answer with the sums of their own
calibration rows (`evaluate.confidence.evidence`), and with theta = 0 only with numbers of rows. If
limits are certified at each site, a site tests its own claims and tells no sums, but

    passed    1 if it may make every claim about its rows, otherwise 0
    able      for each limit 1 if it has enough rows to certify any model, otherwise 0
    rows      the numbers of its rows that count for each mean of each quantity
    failed    at its own place 1 if it has not passed and wants to be named, otherwise zeros

which are added up over the sites, under masks where the run hides sums.

In a run with noise there are no bets. A site answers about one model, with noised counts
(`evaluate.confidence.counts`); if it tests its own claims, it does so on its noised counts.
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
from fedssca.privacy.noise.calibration import CalibrationNoise
from fedssca.run.aim import bare_noise, promise_without_rows
from fedssca.run.build import Job

__all__ = [
    "MOST_MODELS",
    "bets_of",
    "calibration_noise",
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
    noise = calibration_noise(job)
    given = noise and bare_noise(job.clients, noise, sum(sizes))
    return promise_without_rows(job.config, job.clients, sizes, given)


def calibration_noise(job: Job) -> CalibrationNoise | None:
    """The noise on counts of calibration rows; None in a run without noise."""
    return job.noise.calibration if job.noise is not None else None


def own_tester(job: Job) -> Tester:
    """What tests the limits of a run on the rows of one site."""
    return Tester(job.problem, without_rows(job, [1])._replace(each_site=False))


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
    if calibration_noise(job) is not None:
        theta, dtype = {}, np.float64
    if calibration_noise(job) is not None and not keeps_own(job):
        counts = {name: jax.ShapeDtypeStruct((j, 2), dtype) for name, j in means.items()}
        return theta, {"sums": counts}
    if not keeps_own(job):
        sums = {name: jax.ShapeDtypeStruct((j, COLUMNS), dtype) for name, j in means.items()}
        return theta, {"sums": sums}
    return theta, {
        "passed": jax.ShapeDtypeStruct((), dtype),
        "failed": jax.ShapeDtypeStruct((job.clients.count,), dtype),
        "able": jax.ShapeDtypeStruct((len(tester.limits),), dtype),
        "rows": {name: jax.ShapeDtypeStruct((j,), dtype) for name, j in means.items()},
    }
