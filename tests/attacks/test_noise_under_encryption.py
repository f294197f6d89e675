"""The attacker: nobody. An honest run with encrypted sums and noise ended one round too early.

The server asks one site for the scale of its message before it asks all of them for the message.
The site took both questions for messages, counted two, and refused its last round, because it would
have been one message more than the account had.

What stops that: the same request gets the same answer, and counts once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fedssca.rounds.codec import decode
from fedssca.run.config import parse
from tests.deploy.loopback import deployed

pytest.importorskip("dp_accounting")
pytest.importorskip("tenseal")

RUN = """
[data]
name = "breast-cancer"
[model]
name = "linear"
[algorithm]
name = "sgd"
batch = 20
rounds = 4
[privacy]
homomorphic = true
clip = 1.0
value_clip = 3.0
noise_multiplier = 2.0
[run]
evaluate_every = 3
"""


def test_the_last_round_is_answered(tmp_path: Path) -> None:
    done, _, link = deployed(parse(RUN), 2, tmp_path)
    kinds = [decode(answer).kind for answer in link.answers]
    assert "error" not in kinds
    assert kinds.count("train/reply") == 1 + 2 * 3  # the scale, and three rounds of both sites
    assert done["private_messages"] == 3
