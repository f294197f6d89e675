"""A deployed run gives what the simulator gives: the same rounds behind envelopes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca.rounds.codec import decode
from fedssca.run.config import parse
from fedssca.run.execute import execute, load_config
from tests.deploy.loopback import deployed

pytestmark = [
    pytest.mark.filterwarnings("ignore:convergence is not guaranteed"),
    pytest.mark.filterwarnings("ignore:the sum of two parties"),
]
BASE = """
[data]
name = "digits"
[model]
hidden = 4
[algorithm]
batch = 10
rounds = 8
[run]
evaluate_every = 5
"""
LIMIT = ["problem.constraint=[{kind='loss', limit=1.9}]"]
PLAIN = [
    "algorithm.rho={a=0.9,alpha=0.1}",
    "algorithm.gamma={a=0.5,alpha=0.1}",
    "algorithm.tau=0.2",
]
RECALL = ["problem.constraint=[{kind='recall', limit=0.2, positive=3}]"]
COLUMNS = ["data.split=feature", "algorithm.batch=50"]
CASES = {
    "algorithm 1": PLAIN,
    "algorithm 2": [*PLAIN, *LIMIT, "problem.objective=norm", "algorithm.multipliers=exact"],
    "algorithm 3": [*PLAIN, *COLUMNS],
    "algorithm 4": [*PLAIN, *COLUMNS, *LIMIT, "algorithm.multipliers=exact"],
    "local momentum": ["algorithm.name=momentum", "algorithm.local_steps=3"],
    "local ssca": [*LIMIT, "algorithm.local_steps=2"],
    "cohorts": ["algorithm.cohort=1", "algorithm.dropout=0.3", *PLAIN],
    "client loss, until converged": [
        "problem.constraint=[{kind='client_loss', limit=1.9}]",
        *("algorithm.rounds=auto", "algorithm.max_rounds=8"),
    ],
    "recall, one label holder": [*COLUMNS, *RECALL, "data.label_holder=1"],
    "worst client": [
        *LIMIT,
        *PLAIN,
        "problem.objective=worst_client",
        "algorithm.multipliers=exact",
    ],
    "recall, primal-dual": [*RECALL, "algorithm.name=primal-dual"],
    "hidden columns": [*LIMIT, *COLUMNS, "privacy.secure_sum=true"],
    "hidden, one label holder": [
        *COLUMNS,
        *LIMIT,
        "data.label_holder=1",
        "privacy.secure_sum=true",
    ],
    "bottoms": [*COLUMNS, *PLAIN, "model.bottom=[[5, 3], [4]]", "model.join=concatenate"],
    "halves of images, hidden": [
        *(*COLUMNS, *PLAIN, "model.name=cnn", "model.channels=[2]", "model.bottom=[3]"),
        *("data.label_holder=1", "privacy.secure_sum=true"),
    ],
    "columns in double precision": [*LIMIT, *COLUMNS, "run.precision=float64"],
}


@pytest.mark.parametrize("case", CASES)
def test_deployed_is_simulated(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedssca.run.stages.FIRST", 4)
    config = parse(BASE, [*CASES[case], "data.clients=2"])
    theirs = execute(config, tmp_path / "simulated")
    ours, _, _ = deployed(config, 2, tmp_path)
    assert ours["rounds"] == theirs["rounds"]
    # Sums of another order differ in their last bits. The corrected rule solves for multipliers and
    # separates gradients with them, which makes these differences larger.
    corrected = load_config(tmp_path / "simulated").algorithm.multipliers == "corrected"
    for name in ("w_last", "w"):
        a, b = (np.load(tmp_path / run / "model.npz")[name] for run in ("simulated", "run"))
        assert np.linalg.norm(a - b) <= (1e-4 if corrected else 1e-6) * np.linalg.norm(a), name
    for name in ("objective", "train_cost", "train_accuracy", "test_accuracy", "kkt_residual"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-5)
    assert ours["constraints"] == pytest.approx(theirs["constraints"], rel=1e-4, abs=1e-5)
    losses = [run.get("client_losses", []) for run in (ours, theirs)]
    assert len(losses[0]) == (0 if config.data.split == "feature" else 2)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4, abs=1e-5)
    pairs = zip(ours["certificate"]["limits"], theirs["certificate"]["limits"], strict=True)
    for mine, other in pairs:
        for name in ("value", "test_value", "test_interval"):
            if name in other:  # sites also check limits of their own on their own held-out rows
                assert mine[name] == pytest.approx(other[name], rel=1e-3, abs=1e-4), name
    for mine, other in zip(ours["per_client"], theirs["per_client"], strict=True):
        assert mine["rows"] == other["rows"]
        assert mine["train"] == pytest.approx(other["train"], rel=1e-3, abs=2e-3)
        assert mine["test_rows"] > 0


@pytest.mark.parametrize("split", ["sample", "feature"])
def test_only_the_head_of_a_trained_model_is_trained(split: str, tmp_path: Path) -> None:
    """The server has the earlier run; sites get its parameters, and messages hold the head only."""
    network = ["model.hidden=[6, 4]", "data.clients=2", f"data.split={split}"]
    execute(parse(BASE, [*network, "algorithm.name=sgd"]), tmp_path / "first")
    further = [f"model.start={tmp_path / 'first'}", "model.train=head", "run.seed=1"]
    config = parse(BASE, [*network, *further, *PLAIN])
    theirs = execute(config, tmp_path / "simulated")
    ours, _, link = deployed(config, 2, tmp_path)
    first, a, b = (
        np.load(tmp_path / run / "model.npz")["w"] for run in ("first", "simulated", "run")
    )
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
    assert ours["train_cost"] == pytest.approx(theirs["train_cost"], rel=1e-4)
    moved = np.flatnonzero(a != first)
    assert len(moved) == 10 * 4 + 10
    assert (np.diff(moved) == 1).all()
    rounds = [e for e in map(decode, link.answers) if e.kind == "train/reply"]
    assert rounds
    assert max(array.size for e in rounds for array in e.arrays.values()) <= len(moved)
