"""Sites that answered the last round are sent less; what they compute stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.server.sites import SitesMissing
from fedssca.rounds.codec import decode
from fedssca.run.config import parse
from fedssca.run.execute import execute
from tests.deploy.loopback import deployed

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
BASE = """
[data]
name = "digits"
clients = 3
[model]
name = "linear"
[algorithm]
batch = 10
local_steps = 3
rounds = 9
rho = 0.5
gamma = 0.3
tau = 0.5
[run]
evaluate_every = 8
checkpoint_every = 2
precision = "float64"
"""


BITS = pytest.mark.parametrize("bits", [32, 8])


def in_full(link: Any) -> dict[int, int]:
    """Round -> how many sites were sent the averaged statistic."""
    found: dict[int, int] = {}
    for envelope in map(decode, link.envelopes):
        if envelope.kind == "train/reply":
            found[envelope.round] = found.get(envelope.round, 0) + (".average" in envelope.arrays)
    return found


def last(folder: Path) -> np.ndarray:
    found: np.ndarray = np.load(folder / "model.npz")["w_last"]
    return found


def sent_up(link: Any, round_: int) -> dict[str, np.dtype[Any]]:
    """The arrays of the answers of a round, and what they consist of."""
    found = [e for e in map(decode, link.answers) if (e.kind, e.round) == ("train/reply", round_)]
    return {name: array.dtype for e in found for name, array in e.arrays.items()}


@pytest.mark.parametrize(
    ("settings", "vector", "kinds"),
    [
        ([], ".vectors['change']", ("float64", "float64")),
        (["algorithm.bits=16"], ".vectors['change']", ("float64", "int16")),
        (["algorithm.bits=8"], ".vectors['change']", ("float64", "int8")),
        (["algorithm.bits=8", "privacy.secure_sum=true"], "sum:short", (None, "uint16")),
    ],
)
def test_deployed_is_simulated(
    settings: list[str], vector: str, kinds: tuple[str, str], tmp_path: Path
) -> None:
    config = parse(BASE, settings)
    execute(parse(BASE, [s for s in settings if "secure" not in s]), tmp_path / "simulated")
    _, _, link = deployed(config, 3, tmp_path)
    assert in_full(link) == dict.fromkeys(range(1, 9), 0)
    ours, theirs = last(tmp_path / "run"), last(tmp_path / "simulated")
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
    assert tuple(sent_up(link, t).get(vector) for t in (1, 2)) == kinds


@BITS
def test_a_site_whose_answer_was_lost_gets_everything(bits: int, tmp_path: Path) -> None:
    def tamper(site: str, data: bytes, back: bytes) -> bytes:
        envelope = decode(data)
        lost = envelope.kind == "train/reply" and envelope.round == 3 and site == "site-2"
        return b"garbage" if lost else back

    config = parse(BASE, [f"algorithm.bits={bits}"])
    done, _, link = deployed(config, 3, tmp_path, tamper=tamper)
    assert in_full(link) == dict.fromkeys(range(1, 9), 0) | {4: 1}
    assert np.isfinite(done["objective"])


@BITS
def test_a_resumed_run_begins_with_everything(bits: int, tmp_path: Path) -> None:
    config = parse(BASE, [f"algorithm.bits={bits}"])
    deployed(config, 3, tmp_path / "whole")
    dead = [True]

    def tamper(site: str, data: bytes, back: bytes) -> bytes | None:
        envelope = decode(data)
        gone = dead[0] and envelope.kind == "train/reply" and envelope.round == 6
        return None if gone and site != "site-1" else back

    with pytest.raises(SitesMissing):
        deployed(config, 3, tmp_path / "broken", tamper=tamper)
    dead[0] = False
    _, _, link = deployed(config, 3, tmp_path / "broken", tamper=tamper, resume=True)
    assert in_full(link) == {5: 3} | dict.fromkeys(range(6, 9), 0)
    ours, theirs = last(tmp_path / "broken" / "run"), last(tmp_path / "whole" / "run")
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
