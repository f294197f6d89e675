"""Regressions and several labels at sites: a census tells what is needed of all rows.

The results are those of the simulator.
"""

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


LABELS = """
[data]
name = "diabetes"
label = ["progression > 140", "bp > 95", "s6 > 90"]
[model]
name = "linear"
[problem]
task = "multilabel"
[[problem.constraint]]
kind = "fnr"
limit = 0.2
positive = "bp > 95"
[[problem.constraint]]
kind = "error"
limit = 0.3
positive = "progression > 140"
column = "sex"
""" + CONFIG[CONFIG.index("[algorithm]") :]
SPLITS = pytest.mark.parametrize(
    "settings",
    [[], ["privacy.secure_sum=true"], ["data.split=feature", "data.label_holder=0"]],
    ids=["rows", "hidden rows", "columns"],
)


@SPLITS
def test_sites_train_several_labels_as_the_simulator_does(
    settings: list[str], tmp_path: Path
) -> None:
    config = parse(LABELS, [*settings, "data.clients=3"])
    found, _, _ = deployed(config, 3, tmp_path)
    execute(config, tmp_path / "simulated")
    simulated = json.loads((tmp_path / "simulated/result.json").read_text())
    rates = ("train_fnr_1", "train_error_0_sex_1", "test_label_accuracy", "test_exact_match")
    for name in ("objective", *rates, "test_f1_micro", "test_accuracy[s6 > 90]"):
        assert found[name] == pytest.approx(simulated[name], rel=1e-5), name
    own, there = (load_model(tmp_path / name) for name in ("run", "simulated"))
    assert own.classes == there.classes == config.data.labels
    # Rows are counted by the labels that limits name, and by no others.
    assert set(own.counted.columns["y"]) == {0, 1, 2, 3}
    assert own.counted.columns == there.counted.columns
    assert own.counted.counts == there.counted.counts
    assert own.w == pytest.approx(there.w, abs=1e-6)


def test_sites_name_what_is_wrong_with_their_labels(tmp_path: Path) -> None:
    config = parse(LABELS, ["problem.constraint=[]", 'data.label=["sick", "old"]'])
    rows = table()
    rows["sick"] = ["yes" if label == "ill" else "no" for label in rows.pop("y")]
    for cells, said in (
        (["0"] * 60, "no site has enough rows with the label 'old'"),
        (["0", "0", "2"] * 20, "site-1.*'old' is neither 0 nor 1 in row 2"),
    ):
        rows["old"] = cells
        with pytest.raises(UserError, match=said):
            run(config, by_rows(tmp_path, rows), tmp_path / "run")
    del rows["old"]
    with pytest.raises(UserError, match=r"site-1.*there is no column for the label 'old'"):
        run(config, by_rows(tmp_path, rows), tmp_path / "run")


@SPLITS
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
