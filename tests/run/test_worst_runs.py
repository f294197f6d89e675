"""Runs with the objectives worst_client and worst_group: files, options, commands, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedssca.errors import ConfigError
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.estimators import FederatedClassifier
from fedssca.run.execute import load_config
from fedssca.run.tune.space import choose_methods
from fedssca.run.tune.trial import Trial, carry_out
from tests.cli_helpers import SMALL, Shell, weights

NO_LIMIT = "problem.constraint=[]"
CLIENT = ("problem.objective=worst_client", NO_LIMIT)
GROUP = ("problem.objective=worst_group", "problem.column=g", NO_LIMIT)


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two features, a label, and a column g with three values."""
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(120, 2)), rng.integers(0, 3, 120)
    y = x[:, 0] + 0.5 * g * x[:, 1] + rng.normal(size=120) > 0
    lines = [f"{a:.4f},{b:.4f},{k},{int(c)}" for (a, b), k, c in zip(x, g, y, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,g,y", *lines]) + "\n")
    return tmp_path / "table.csv"


@pytest.mark.long
def test_a_run_reports_the_worst_client_and_a_model_without_s(shell: Shell, tmp_path: Path) -> None:
    shell.run(tmp_path / "out", *CLIENT)
    out = tmp_path / "out"
    result = json.loads((out / "result.json").read_text())
    names = [f"worst_client_{i}" for i in range(4)]
    assert result["constraint_names"] == names
    assert [entry["name"] for entry in result["certificate"]["constraints"]] == names
    assert result["feasible"]
    assert max(result["constraints"]) == 0
    assert result["train_worst"] == pytest.approx(max(result["client_losses"]), rel=1e-5)
    norm = float(weights(out, "w") @ weights(out, "w"))
    assert result["norm_sq"] == pytest.approx(norm, rel=1e-5)
    l2 = load_config(out).problem.l2
    assert result["objective"] == pytest.approx(result["train_worst"] + l2 * norm, rel=1e-5)
    assert "test_worst" not in result  # held-out rows belong to no client
    facts = json.loads((out / "problem.json").read_text())
    assert facts["parameters"] == weights(out, "w").size == 3 * (30 + 2)
    for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()):
        assert row["objective"] == pytest.approx(row["train_worst"] + l2 * row["norm_sq"])
    # The same run in two halves is the same, s included.
    shell.run(tmp_path / "half", *CLIENT)
    (tmp_path / "half/result.json").unlink()
    (tmp_path / "half/model.npz").unlink()
    assert shell("run", "--resume", tmp_path / "half", "--quiet").code == 0
    assert np.array_equal(weights(tmp_path / "half", "w"), weights(out, "w"))


@pytest.mark.long
def test_groups_come_from_a_column_of_the_file(shell: Shell, tmp_path: Path, table: Path) -> None:
    """The column is kept without data.keep; a twin has the mean loss as its objective."""
    settings = (*GROUP, f"data.path={table}", "data.split=feature", "data.clients=2")
    outcome = shell.run(tmp_path / "out", *settings, options=("--json", "--twin"))
    result = json.loads(outcome.out)
    assert result["constraint_names"] == ["worst_g_0", "worst_g_1", "worst_g_2"]
    assert result["test_worst"] >= result["test_cost"]
    assert result["twin"]["constraint_names"] == []


def test_errors_name_the_key() -> None:
    for settings, key, words in (
        (["problem.objective=worst_group"], "problem.column", "needs column"),
        (["problem.column=sex"], "problem.column", "only the objective worst_group"),
        (["problem.objective=worst"], "problem.objective", "did you mean .worst_"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            parse(SMALL, settings)
        assert caught.value.key == key


def test_errors_are_one_line(shell: Shell, table: Path) -> None:
    def refused(*settings: str) -> str:
        return shell.refused("run", shell.small, *(p for s in settings for p in ("--set", s)))

    assert "hold rows of their own" in refused(*CLIENT, "data.split=feature")
    assert 'use data.split = "sample"' in refused(*CLIENT, "data.split=feature")
    assert "no column 'g'" in refused(*GROUP)
    several = refused(*GROUP[:1], "problem.column=a", NO_LIMIT, f"data.path={table}")
    assert "column 'a' has" in several
    assert "know no constraints" in refused(*CLIENT, "algorithm.name=sgd")


def test_the_settings_say_what_a_run_needs() -> None:
    plain, client, group = (
        parse(SMALL, list(settings)).problem for settings in ([NO_LIMIT], CLIENT, GROUP)
    )
    assert (plain.limited, plain.per_client, plain.counts, plain.columns) == (0, 0, 0, [])
    assert (client.limited, client.per_client, client.counts, client.columns) == (1, 1, 0, [])
    assert (group.limited, group.per_client, group.counts, group.columns) == (1, 0, 1, ["g"])
    limit = "problem.constraint=[{kind='parity', column='h', limit=0.1}]"
    both = parse(SMALL, [*GROUP[:2], limit]).problem
    assert (both.columns, both.counts) == (["g", "h"], True)


@pytest.mark.long
def test_trials_are_judged_by_the_worst() -> None:
    config = parse(SMALL, list(CLIENT))
    assert "sgd" not in choose_methods(config, None)[0]
    trial = carry_out(config, build(config).dataset, Trial("ssca", 0, {}), None)
    assert trial.objective is not None
    assert trial.validation_cost is not None
    assert trial.violation == 0


@pytest.mark.long
def test_an_estimator_with_worst_objectives() -> None:
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=(90, 2)), np.repeat([0, 1], 45)
    y = np.where(g == 1, x[:, 0] > 0, x[:, 1] > 0)
    parties = [{"x": x[i::3], "y": y[i::3], "g": g[i::3]} for i in range(3)]
    for settings, names in (
        ({"objective": "worst_client"}, [f"worst_client_{i}" for i in range(3)]),
        ({"objective": "worst_group", "column": "g"}, ["worst_g_0", "worst_g_1"]),
    ):
        model = FederatedClassifier("linear", rounds=30, **settings).fit(parties)
        found = [entry["name"] for entry in model.result_.certificate["constraints"]]
        assert found == names
        assert model.feasible_
        assert model.predict(x).shape == (90,)
        assert model.result_.w.shape == (3,)
