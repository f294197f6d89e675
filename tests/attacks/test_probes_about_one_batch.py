"""The attacker: an honest accountant who counts five messages about one batch as five batches.

He wants nothing bad. But the probes of the calibration all asked for the same batch, and were
counted as if each had drawn a batch of its own: whoever was in that batch was seen five times. A
run that claimed epsilon 1.00 spent 5.46.

What stops him: under noise every probe draws a batch of its own, so that the count is what happens.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Rows
from fedssca.methods.algorithm import Request
from fedssca.methods.calibrate import PROBES, probe
from fedssca.privacy.noise.messages import with_noise
from fedssca.problem.models import classifier, mlp

pytest.importorskip("dp_accounting")


def batches_of(noised: bool) -> list[int]:
    """The numbers of the batches that the probes ask for."""
    problem = classifier(mlp(4, 3, 2), [])
    algorithm = probe(problem, 5, noised=noised)
    state, found = algorithm.init(problem.start), []
    for done in range(PROBES):
        asked: Request = algorithm.request(state._replace(round=jnp.asarray(done)))
        found.append(int(asked.round))
    return found


def test_every_noised_probe_has_a_batch_of_its_own() -> None:
    assert len(set(batches_of(noised=True))) == PROBES
    assert batches_of(noised=False) == [0, 0, 0, 0, 0, -1]  # exact probes are compared row by row


def test_the_account_has_one_draw_for_each_of_them() -> None:
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(500, 4)).astype(np.float32), "y": np.zeros(500, np.int32)}
    problem = classifier(mlp(4, 3, 2), [])
    made, noise = with_noise(
        probe(problem, 5, noised=True),
        problem,
        Rows(data, (500,)),
        clip=1.0,
        noise_multiplier=1.0,
        rounds=11,
        probes=PROBES,
        evaluate_every=0,
    )
    assert noise.ledger is not None
    (release,) = noise.ledger.releases()
    assert (release.messages, release.rate) == (10 + PROBES, 0.01)
    answered = [t for t in range(-20, 20) if noise.due(0, t)]
    assert answered == [*range(1 - PROBES, 11)]
    assert {*batches_of(noised=True)} <= {*answered}
    assert made.places > 5
