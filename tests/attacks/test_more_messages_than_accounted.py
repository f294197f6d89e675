"""The attacker: a lying server that asks one site again and again.

It wants to average the noise away. It asked for one round 400 times, which shrank the noise 20
times; or it asked a site in rounds for which the cohort had not named it, 1,000 in place of the 117
that were accounted for.

What stops it: a site knows which rounds are its own. It answers each of them once; the same request
gets the same answer again, bit for bit, and any other request for that round is refused.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.deploy.site.stages import Parts, stage_client
from fedssca.errors import UserError
from fedssca.methods.algorithm import Request
from fedssca.methods.participation import Cohort, asked_in
from fedssca.run.build import build
from fedssca.run.config import parse

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")
from fedssca.privacy.noise.secret import SecretNoise

RUN = """
[data]
clients = 6
[model]
name = "linear"
[algorithm]
name = "sgd"
batch = 20
rounds = 31
cohort = 2
[privacy]
clip = 1.0
noise_multiplier = 2.0
"""
SITE = 1


def site(config_text: str = RUN) -> tuple[Any, Any]:
    job = build(parse(config_text))
    part = {name: np.asarray(column) for name, column in job.clients.client(SITE).items()}
    return job, stage_client("train", job, SITE, Parts(part, {}, {}), SecretNoise())


def test_one_round_asked_for_400_times_is_one_message() -> None:
    job, client = site()
    own = [t for t in range(1, 31) if job.noise.due(SITE, t)]
    asked = Request(jnp.asarray(own[0]), job.problem.start)
    answers = [client.handle("reply", asked)[-1].vectors["change"] for _ in range(400)]
    assert all(np.array_equal(answers[0], again) for again in answers)
    with pytest.raises(UserError, match="was answered before"):
        client.handle("reply", asked._replace(w=job.problem.start + 1e-3))


def test_only_the_rounds_of_the_own_cohort_are_answered() -> None:
    job, client = site()
    cohort, seed = Cohort(2, 6), job.config.run.seed
    own = {t for t in range(1, 31) if SITE in np.asarray(asked_in(jnp.int32(t), cohort, seed))}
    answered = set()
    for t in range(-10, 60):
        try:
            client.handle("reply", Request(jnp.asarray(t), job.problem.start))
            answered.add(t)
        except UserError:
            pass
    assert answered == own
    assert len(answered) <= job.noise.ledger.count(30) < 30
