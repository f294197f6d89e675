"""The audit of epsilon: bounds that hold, and a bound that finds a wrong account."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from fedssca.methods.algorithm import Request
from fedssca.privacy.noise.accountant import COARSE, Release, epsilon_of
from fedssca.privacy.noise.ledger import Ledger
from fedssca.privacy.noise.messages import simulated
from fedssca.rounds.client import SERVER, RowClient
from fedssca.studies.audit.one_run import lower_bound, p_value
from tests.cli_helpers import Shell

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")
from fedssca.studies.audit.canaries import (
    Mechanism,
    at_a_site,
    mechanism_of,
    requests_of,
    scores_of,
)

DELTA = 1e-5
RUN = """
[data]
name = "breast-cancer"
clients = 2
[model]
name = "linear"
[algorithm]
name = "sgd"
batch = 50
rounds = 4
[privacy]
clip = 1.0
epsilon = 4.0
"""


def test_the_p_value_of_randomised_response() -> None:
    """Without delta it is a binomial tail: 90 of 100 right at e^eps / (1 + e^eps) = 0.9."""
    assert p_value(100, 100, 90, np.log(9), 0.0) == pytest.approx(binom.sf(89, 100, 0.9))
    assert p_value(100, 100, 90, np.log(9), 1e-4) > p_value(100, 100, 90, np.log(9), 0.0)
    assert p_value(100, 100, 99, 0.0, 0.0) < 1e-20


def test_scores_of_a_known_mechanism_give_a_bound_below_its_epsilon() -> None:
    """Randomised response with epsilon 2; and scores that say nothing."""
    rng = np.random.default_rng(0)
    inside = rng.random(4000) < 0.5
    truth = rng.random(4000) < np.e**2 / (1 + np.e**2)
    said = np.where(truth, inside, ~inside)
    found = lower_bound(np.where(said, 2.0, -2.0), inside, DELTA, independent=True)
    assert 1.5 < found.epsilon < 2.0
    nothing = lower_bound(rng.normal(size=4000), inside, DELTA, independent=True)
    assert nothing.epsilon < 0.2


SETTINGS: dict[str, Ledger] = {
    "one message about all rows": Ledger(1.0, DELTA, "sample", 1.0, 1),
    "few rounds, high rate": Ledger(1.0, DELTA, "sample", 0.25, 20, probes=6),
    "many rounds, low rate": Ledger(0.7, DELTA, "sample", 0.05, 60, probes=6),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_bound_stays_below_the_claim(name: str) -> None:
    ledger, rows = SETTINGS[name], 1000
    mechanism = mechanism_of(ledger, rows, int(ledger.rate * rows), np.random.default_rng(1))
    scores = scores_of(mechanism, at_a_site(mechanism), requests_of(mechanism))
    found = lower_bound(scores, mechanism.inside, DELTA, independent=True)
    assert 0.1 < found.epsilon < ledger.exact(fine=COARSE)


def by_seed(mechanism: Mechanism) -> Any:
    """A client whose batch is a function of the round that it is asked for, as in a simulation."""
    total = len(mechanism.rows["canary"])
    parts = mechanism.problem, mechanism.algorithm, mechanism.rows, total
    client = RowClient(0, *parts, 4, simulated(mechanism.noise, 4))
    return lambda request: client.handle("reply", request)[SERVER]


def test_it_finds_probes_that_share_a_batch() -> None:
    """The account says 1.0 where 7.9 is true, and 100,000 canaries show it."""
    ledger = Ledger(0.764, DELTA, "sample", 0.01, 1, probes=6)
    claimed = ledger.exact(fine=COARSE)
    assert claimed == pytest.approx(1.0, abs=0.02)
    true = epsilon_of((Release(0.764 / 5**0.5, 1, 0.01), Release(0.764, 2, 0.01)), DELTA, COARSE)
    assert true > 7
    rng, bounds = np.random.default_rng(2), {}
    for noised in (False, True):
        mechanism = mechanism_of(ledger, 100_000, 1000, rng, most=100_000)
        requests = requests_of(mechanism, noised=noised)
        assert len({int(asked.round) for asked in requests}) == (7 if noised else 3)
        scores = scores_of(mechanism, by_seed(mechanism), requests)
        found = lower_bound(scores, mechanism.inside, DELTA, independent=True)
        bounds[noised] = found.epsilon
    assert bounds[True] < claimed < bounds[False] < true


def test_the_code_of_today_draws_a_batch_for_every_probe() -> None:
    """The same attack on what sites really send: the probes tell no more than the rounds."""
    ledger = Ledger(0.764, DELTA, "sample", 0.1, 1, probes=6)
    mechanism = mechanism_of(ledger, 1000, 100, np.random.default_rng(3))
    answer = at_a_site(mechanism)
    both = [
        np.asarray(answer(asked).vectors["gradient"])[0] * 100 for asked in requests_of(mechanism)
    ]
    # Canaries in the batch of one probe are in that of another one no more often than chance says.
    inside = [seen[mechanism.inside] for seen in both]
    assert abs(np.corrcoef(inside)[~np.eye(len(inside), dtype=bool)]).max() < 0.2
    with pytest.raises(Exception, match="answered before"):
        answer(Request(jnp.asarray(0), mechanism.problem.start + 1))


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(RUN)
    seen = shell("audit", "run.toml", "--privacy", "--json")
    assert (seen.code, seen.err) == (0, "")
    said = json.loads(seen.out)
    assert said["holds"]
    assert said["lower_bound"] < said["claimed_epsilon"] <= 4.0
    assert said["canaries"] == said["rows"]
    assert "below the claim" in shell("audit", "run.toml", "--privacy").out
    without = ["--set", "privacy.epsilon=0.0"]
    assert "has no noise" in shell.refused("audit", "run.toml", "--privacy", *without)
    columns = ["--set", "privacy.unit=client"]
    assert "canaries are rows" in shell.refused("audit", "run.toml", "--privacy", *columns)
