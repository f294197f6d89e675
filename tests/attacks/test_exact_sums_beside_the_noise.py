"""The attacker: a curious server in a run with noise.

It wants exact numbers, and does not have to ask for them: beside the noisy messages, which epsilon
counted, every site sent the exact sums of every evaluation and one exact gradient over all rows.

What stops it: evaluations carry noise and are counted in epsilon. Sums of groups and gradients over
all rows are not sent at all, whoever asks for them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca.deploy.site.stages import Parts, stage_client
from fedssca.errors import UserError
from fedssca.rounds.codec import decode
from fedssca.run.build import build
from fedssca.run.config import parse
from tests.deploy.loopback import deployed

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")
from fedssca.privacy.noise.secret import SecretNoise

RUN = """
[data]
name = "breast-cancer"
clients = 2
[model]
name = "linear"
[algorithm]
name = "sgd"
batch = 20
rounds = 5
[privacy]
clip = 1.0
value_clip = 3.0
noise_multiplier = 2.0
[run]
evaluate_every = 2
"""
NONE = {"x": np.zeros((0, 30), np.float32)}
"""No held-out rows."""


@pytest.mark.parametrize("settings", [[], ["privacy.secure_sum=true", "data.clients=3"]])
def test_nothing_exact_leaves_a_site(tmp_path: Path, settings: list[str]) -> None:
    config = parse(RUN, settings)
    done, _, link = deployed(config, config.data.clients, tmp_path)
    kinds = {decode(envelope).kind for envelope in link.envelopes}
    assert not {kind for kind in kinds if kind.startswith(("tally", "slope"))}
    assert done["private_evaluations"] == 3
    assert done["epsilon_covers"] == "all messages and evaluations that leave the clients"
    assert done["kkt_residual"] is None
    assert 0 <= done["test_accuracy"] <= 1


def test_evaluations_carry_the_noise_that_is_counted() -> None:
    job = build(parse(RUN))
    part = {name: np.asarray(column) for name, column in job.clients.client(0).items()}
    asked = {"w": job.problem.start}

    def terms(noise: SecretNoise) -> float:
        client = stage_client("measure", job, 0, Parts(part, NONE, {}), noise)
        (sums, _), _ = client.handle("reply", asked)[-1]
        return float(sums[0])

    drawn = np.array([terms(SecretNoise()) for _ in range(60)])
    exact = len(part["y"]) * np.log(2)  # a linear model starts at w = 0
    evaluation = job.noise.evaluation if job.noise else None
    assert evaluation is not None
    size = float(evaluation.deviations(job.problem, job.clients, 0, 0).terms[0])
    assert drawn.std() == pytest.approx(size, rel=0.4)
    assert abs(drawn.mean() - exact) < 5 * size / np.sqrt(60)


def test_whoever_asks_for_more_is_refused() -> None:
    job = build(parse(RUN))
    part = {name: np.asarray(column) for name, column in job.clients.client(0).items()}
    parts, noise = Parts(part, NONE, {}), SecretNoise()
    for stage in ("tally", "slope"):
        with pytest.raises(UserError, match="exact sums over all rows"):
            stage_client(stage, job, 0, parts, noise)
    client, start = stage_client("measure", job, 0, parts, noise), job.problem.start
    for serial in range(3):
        client.handle("reply", {"w": start + serial})
        client.handle("reply", {"w": start + serial})  # the same again: the same answer
    with pytest.raises(UserError, match="3 evaluations were accounted for"):
        client.handle("reply", {"w": start + 9})


def test_a_job_cannot_ask_for_exact_evaluations(tmp_path: Path) -> None:
    config = parse(RUN, ["privacy.evaluation=exact"])
    with pytest.raises(UserError, match="send no exact sums"):
        deployed(config, 2, tmp_path)
