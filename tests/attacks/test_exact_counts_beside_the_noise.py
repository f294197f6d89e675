"""The attacker: a curious server in a run with noise and a confidence.

It wants the exact counts of calibration rows. It asks for them about several models, or about one
model again and again, to average the noise away; or it asks with bets, which change the question.

What stops it: a site adds noise from its own entropy to every count, answers about one model, and
gives the same answer again to the same question. The account has this one release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.site.stages import Parts, stage_client
from fedssca.deploy.stages import shapes_of, spending_of
from fedssca.errors import UserError
from fedssca.rounds.client import SERVER
from fedssca.run.build import build
from fedssca.run.config import parse

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")
from fedssca.privacy.noise.secret import SecretNoise

Handle = Callable[[str, Any], Any]
RUN = """
[data]
name = "breast-cancer"
clients = 2
[model]
name = "linear"
[problem]
confidence = 0.9
constraint = [{kind = "fnr", positive = 1, limit = 0.9}]
[algorithm]
batch = 20
rounds = 5
rho = {a = 0.9, alpha = 0.6}
gamma = {a = 0.5, alpha = 0.9}
tau = 0.2
[privacy]
clip = 1.0
noise_multiplier = 2.0
[run]
evaluate_every = 4
"""


@pytest.mark.filterwarnings("ignore:fnr of")
def test_exact_counts_stay_at_a_site() -> None:
    job = build(parse(RUN))
    own = {name: np.asarray(column) for name, column in job.clients.client(0).items()}
    start = job.problem.start

    def site() -> Handle:
        parts = Parts(own, {}, {}, own)
        return stage_client("evidence", job, 0, parts, SecretNoise()).handle

    def told(handle: Handle, shift: float = 0.0) -> np.ndarray:
        (counts,) = handle("reply", {"w": start + shift, "theta": {}})[SERVER]["sums"].values()
        return np.asarray(counts)

    first = site()
    answer = told(first)
    assert not (answer == np.rint(answer)).any()
    np.testing.assert_array_equal(told(first), answer)  # the same again: the same answer
    with pytest.raises(UserError, match="accounted for"):
        told(first, 1.0)
    noise = job.noise.calibration if job.noise else None
    assert noise is not None
    exact = (own["y"] == 1).sum()
    away = np.array([told(site()).sum() - exact for _ in range(8)])  # hits and misses
    size = np.sqrt(2) * noise.spread()
    assert np.abs(away).max() < 6 * size
    assert np.sqrt(np.mean(away**2)) > size / 5


@pytest.mark.filterwarnings("ignore:fnr of")
def test_bets_are_no_part_of_the_question_and_the_release_is_accounted_for() -> None:
    job = build(parse(RUN))
    assert shapes_of("evidence", job, 0).asked["theta"] == {}
    spent = spending_of("evidence", job.noise)
    assert spent is not None
    assert spent == spending_of("train", job.noise)  # counted from the first message on
    assert job.noise is not None
    assert job.noise.ledger is not None
    assert spent.releases[-1].sigma == job.noise.ledger.calibration_sigma
    assert len(spent.releases) == 3  # messages, evaluations, counts
