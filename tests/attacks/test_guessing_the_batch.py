"""The attacker: a server that wants to know who is in a batch.

The account of a noisy run rests on the server not knowing which rows were drawn. The batches were
drawn from a number of 63 bits that the code mixed into 32 bits: four thousand million batches,
which a server can try one by one. They also had a fixed size, for which the account does not hold.

What stops him: sites draw each row for itself, with bits of AES under a key of 256 bits from the
operating system. Nothing that the server knows or sends leads to them.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedssca.data.sampling import batch_indices
from fedssca.deploy.site.stages import Parts, stage_client
from fedssca.run.build import Job, build
from fedssca.run.config import parse

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")
from fedssca.privacy.noise.secret import SecretNoise

RUN = """
[data]
clients = 3
[model]
name = "linear"
[algorithm]
name = "sgd"
batch = 20
rounds = 5
[privacy]
clip = 1.0
noise_multiplier = 2.0
"""


def drawn_at_a_site(job: Job, times: int) -> list[frozenset[int]]:
    """The batches of one site, read from what it computes with."""
    draw = SecretNoise().batches(job.algorithm, job.clients.sizes[0])
    asked = job.algorithm.request(job.algorithm.init(job.problem.start))
    found = []
    for _ in range(times):
        drawn = draw(asked)
        found.append(frozenset(drawn.rows[0][drawn.present[0]].tolist()))
    return found


def test_batches_are_poisson_samples_that_the_seed_does_not_know() -> None:
    job = build(parse(RUN))
    rows = job.clients.sizes[0]
    found = drawn_at_a_site(job, 300)
    sizes = [len(batch) for batch in found]
    assert np.mean(sizes) == pytest.approx(20, abs=1.5)
    assert np.std(sizes) == pytest.approx(np.sqrt(20 * (1 - 20 / rows)), rel=0.25)
    assert len(set(found)) == 300
    for seed in (job.config.run.seed, 0):
        by_seed = batch_indices(seed, 1, np.array([0]), np.array([rows]), 20)
        assert frozenset(np.asarray(by_seed)[0].tolist()) not in found


def test_the_site_uses_them() -> None:
    """Two sites with the same rows, the same seed and no noise to speak of send different sums."""
    job = build(parse(RUN, ["privacy.noise_multiplier=1e-3", "privacy.evaluation=exact"]))
    part = {name: np.asarray(column) for name, column in job.clients.client(0).items()}
    asked = job.algorithm.request(job.algorithm.init(job.problem.start))
    one, other = (
        stage_client("train", job, 0, Parts(part, {}, {}), SecretNoise()).handle("reply", asked)
        for _ in range(2)
    )
    vectors = [np.asarray(out[-1].vectors["change"]) for out in (one, other)]
    assert np.linalg.norm(vectors[0] - vectors[1]) > 0.1 * np.linalg.norm(vectors[0])
