"""Regressions at sites: the target's unit comes from a census, and results are the simulator's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.model import load_model
from tests.deploy.loopback import deployed
from tests.deploy.test_sites import by_rows, run, table

CONFIG = """
[data]
name = "diabetes"
[model]
name = "linear"
[problem]
task = "regression"
[[problem.constraint]]
kind = "mae"
limit = 60
column = "sex"
[algorithm]
batch = 10
rounds = 4
rho = {a=0.9,alpha=0.3}
gamma = {a=0.5,alpha=0.6}
tau = 1.0
multipliers = "exact"
[run]
evaluate_every = 3
precision = "float64"
"""


@pytest.mark.parametrize(
    "settings",
    [[], ["privacy.secure_sum=true"], ["data.split=feature", "data.label_holder=0"]],
    ids=["rows", "hidden rows", "columns"],
)
def test_sites_train_as_the_simulator_does(settings: list[str], tmp_path: Path) -> None:
    config = parse(CONFIG, [*settings, "data.clients=3"])
    found, _, _ = deployed(config, 3, tmp_path)
    execute(config, tmp_path / "simulated")
    simulated = json.loads((tmp_path / "simulated/result.json").read_text())
    for name in ("objective", "train_rmse", "train_mae_sex_1", "test_rmse", "test_r2"):
        assert found[name] == pytest.approx(simulated[name], rel=1e-5), name
    own, there = (load_model(tmp_path / name) for name in ("run", "simulated"))
    assert own.target is not None
    assert own.target == pytest.approx(there.target, rel=1e-6)


def test_a_target_of_text_names_its_site(tmp_path: Path) -> None:
    config = parse(CONFIG, ["problem.constraint=[]"])
    with pytest.raises(UserError, match=r"site-1.*text or no column of numbers"):
        run(config, by_rows(tmp_path, table()), tmp_path / "run")
