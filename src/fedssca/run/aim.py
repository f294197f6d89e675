"""Limits on new rows under noise: the noise on counts, and the limits that training aims at.

A run with noise has no path of models from cautious to bold: it would be made from exact results on
training rows. Its only tested model is that of the last round. So that this model passes, training
aims at limits that are tightened by what the test will need (`evaluate.confidence.margins`). What
is reported is measured against the limits as they were stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedssca.data import Columns, Rows
from fedssca.evaluate.confidence import Calibration, Tester
from fedssca.evaluate.confidence.counts import CountNoise, row_shares
from fedssca.evaluate.confidence.margins import noised_margin
from fedssca.evaluate.passes import CHUNK
from fedssca.privacy.noise.calibration import CalibrationNoise
from fedssca.problem.limits import stated
from fedssca.problem.problem import Problem
from fedssca.run.config import Config

__all__ = ["aimed", "bare_noise", "count_noise", "promise_without_rows"]


def count_noise(
    problem: Problem,
    clients: Rows | Columns,
    noise: CalibrationNoise,
    rows: int,
    seed: int = 0,
) -> CountNoise:
    """The noise on counts of so many calibration rows, and how many rows to expect of each mean."""
    names = [
        limit.quantity
        for limit in stated(problem.bounds)
        if not any(m + 1 in problem.worst for m in limit.constraints)
    ]
    shares = row_shares(problem, clients, names)
    return bare_noise(clients, noise, rows)._replace(seed=seed, shares=shares)


def bare_noise(clients: Rows | Columns, noise: CalibrationNoise, rows: int) -> CountNoise:
    """The noise alone.

    Every client with rows adds its own; of parties with columns one adds it to each chunk of rows.
    """
    parts = clients.count if isinstance(clients, Rows) else -(-max(rows, 1) // CHUNK)
    return CountNoise(pooled=noise.deviation(parts), alone=noise.deviation(1, alone=True))


def promise_without_rows(
    config: Config, clients: Rows | Columns, sizes: Sequence[int], noise: CountNoise | None = None
) -> Calibration:
    """What is promised with rows of which only the columns and the numbers are known."""
    like = {name: np.asarray(column[:1]) for name, column in clients.columns.items()}
    like["client"] = np.zeros(1, np.int32)
    each = config.problem.certify == "each_site"
    return Calibration(like, None, each, config.problem.clip, len(sizes), tuple(sizes), noise)


def aimed(
    config: Config, problem: Problem, clients: Rows | Columns, noise: CalibrationNoise
) -> Problem:
    """The problem with limits tightened by what their certification will need.

    The numbers of calibration rows are those that `data.calibration_fraction` lets expect.
    """
    share = config.calibration_fraction
    held = clients.sizes if isinstance(clients, Rows) else (clients.total,)
    sizes = [round(rows * share / (1 - share)) for rows in held]
    given = count_noise(problem, clients, noise, sum(sizes))
    tester = Tester(problem, promise_without_rows(config, clients, sizes, given))
    margins = np.zeros(problem.constraints)
    for limit in tester.limits:
        each = tester.is_of_every_site(limit)
        rows, spread = tester.likely_rows(limit, given), given.on_line(0, each)
        for m in limit.constraints:
            claim = tester.claim(limit, m)
            margins[m] = noised_margin(limit, claim, rows, spread, tester.clip)
    return replace(problem, limits=problem.limits - margins)
