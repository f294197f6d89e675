"""Runs that promise limits for new rows: what they say, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedssca
from fedssca.evaluate.confidence import Calibration
from fedssca.run.aim import aimed
from fedssca.run.build import Job, build
from fedssca.run.config import parse
from tests.cli_helpers import Shell, result

BASE = """
[data]
name = "breast-cancer"
clients = 3
calibration_fraction = 0.4

[model]
name = "linear"

[problem]
confidence = 0.9

[[problem.constraint]]
kind = "fnr"
positive = 0
limit = 0.15

[[problem.constraint]]
kind = "loss"
limit = 0.5

[algorithm]
batch = 20
rounds = 25
"""


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def run(shell: Shell, *settings: str, text: str = BASE) -> dict[str, Any]:
    (shell.folder / "own.toml").write_text(text)
    given = [part for setting in settings for part in ("--set", setting)]
    out = shell.folder / "out"
    outcome = shell("run", shell.folder / "own.toml", *given, "--out", out, "--quiet")
    assert outcome.code == 0, outcome
    return result(out)


@pytest.mark.long
def test_a_certificate_for_new_rows(shell: Shell) -> None:
    found = run(shell)
    certificate = found["certificate"]
    assert certificate["certified"] is True
    assert certificate["confidence"] == pytest.approx(0.9)
    fnr, loss = certificate["constraints"]
    assert (fnr["confidence"], fnr["certified"], fnr["bound"]) == (pytest.approx(0.9), True, 0.15)
    hits, rows = fnr["calibration_counts"][0]
    assert fnr["calibration_rows"] == rows > 40
    assert fnr["calibration_value"] == pytest.approx(hits / rows)
    assert fnr["p_value"] <= 0.1
    assert loss["bound"] == 0.5
    assert loss["calibration_rows"] > 100
    line = shell.refused("run", "--resume", shell.folder / "out", "--more", 5)
    assert "a second test on the same rows" in line


@pytest.mark.long
def test_every_site_is_promised_its_own_rows(shell: Shell) -> None:
    found = run(shell, "problem.certify=each_site", "problem.constraint.0.limit=0.3")
    entry = found["certificate"]["constraints"][0]
    assert [site["site"] for site in entry["per_site"]] == [0, 1, 2]
    assert entry["calibration_rows"] == sum(site["counts"][0][1] for site in entry["per_site"])
    assert found["certificate"]["certified"] == all(s["p_value"] <= 0.1 for s in entry["per_site"])


@pytest.mark.long
def test_too_few_rows_are_said_before_training_and_after(shell: Shell) -> None:
    settings = ("problem.constraint.0.limit=0.001", "problem.confidence=0.99")
    found = run(shell, *settings)
    assert found["certificate"]["certified"] is False
    assert any("such rows are needed" in note for note in found["notes"])
    line = shell.refused(
        "run",
        shell.folder / "own.toml",
        *(part for setting in settings for part in ("--set", setting)),
        *("--set", "problem.uncertified=stop", "--out", shell.folder / "stopped"),
    )
    assert "even without a single error they certify only" in line
    assert not (shell.folder / "stopped").exists()


def test_counts_with_noise_certify(shell: Shell) -> None:
    """One model is tested on counts whose noise epsilon covers; training aims inside the limits."""
    pytest.importorskip("dp_accounting")
    steps = (
        "rho={a=0.9,alpha=0.6}",
        "gamma={a=0.5,alpha=0.9}",
        "tau=0.2",
        "multipliers=exact",
        "rounds=12",
    )
    noise = "privacy={clip=1.0, value_clip=3.0, noise_multiplier=0.8, secure_sum=true}"
    limits = ("problem.constraint.0.limit=0.35", "problem.constraint.1.limit=1.5")
    found = run(shell, noise, "run.evaluate_every=11", *limits, *(f"algorithm.{s}" for s in steps))
    certificate, privacy = found["certificate"], found["calibration_noise_multiplier"]
    assert (certificate["certified"], certificate["models_tested"]) == (True, 1)
    assert 0 < found["calibration_epsilon"] <= found["epsilon"]
    assert "counts of calibration rows" in found["epsilon_covers"]
    fnr, loss = certificate["constraints"]
    assert (fnr["bound"], loss["bound"]) == (0.35, 1.5)
    assert fnr["confidence"] == loss["confidence"] == pytest.approx(0.9)
    assert 80 < fnr["calibration_rows"] < loss["calibration_rows"] < 220
    told = certificate["claims"][0]["evidence"]
    assert told["noise"] > privacy * np.sqrt(2)  # a row is counted for two limits
    assert not float(told["rows"][0]).is_integer()
    with open(shell.folder / "out" / "config.toml", "rb") as file:
        job = build(parse(file.read().decode()))
    aim = method_limits(job)
    assert (aim < job.problem.limits).all()
    assert (aim > 0).all()


def method_limits(job: Job) -> np.ndarray:
    assert job.noise is not None
    assert job.noise.calibration is not None
    return aimed(job.config, job.problem, job.clients, job.noise.calibration).limits


def test_what_cannot_be_promised_is_refused(shell: Shell) -> None:
    (shell.folder / "own.toml").write_text(BASE)
    for setting, said in {
        "problem.confidence=1.5": "problem.confidence",
        "data.calibration_fraction=0": "calibration_fraction above 0",
        "privacy={epsilon=1, clip=1, unit='client'}": 'use "sample"',
    }.items():
        line = shell.refused(
            "run", shell.folder / "own.toml", "--set", setting, "--out", shell.folder / "out"
        )
        assert said in line


def test_calibration_rows_in_python() -> None:
    data = fedssca.load("breast-cancer")
    train = {name: values[:300] for name, values in data.train.items()}
    rows = {name: values[300:] for name, values in data.train.items()}
    clients = fedssca.by_sample(train, clients=2)
    limit = fedssca.false_negative_rate_at_most(0.2, train["y"], positive=0)
    problem = fedssca.classifier(fedssca.linear(30, 2), limit)
    steps = fedssca.auto(problem, clients, batch=20, rounds=40)
    promised = Calibration(rows | {"client": np.zeros(len(rows["y"]), np.int32)}, 0.9)
    found = fedssca.simulate(problem, clients, steps, rounds=40, calibration=promised)
    entry = found.certificate["constraints"][0]
    assert found.certificate["certified"] == entry["certified"]
    wrong = Calibration(promised.rows, 1.0)
    with pytest.raises(fedssca.UserError, match="between 0 and 1"):
        fedssca.simulate(problem, clients, steps, rounds=2, calibration=wrong)


def test_a_cautious_model_shows_no_prices_and_says_that_it_learnt_little(shell: Shell) -> None:
    """Weak features, so that few misses on new rows are reached by predicting "yes" for all."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 2))
    sick = x[:, 0] + 2 * rng.normal(size=900) > 1
    lines = (f"{a:.3f},{b:.3f},{'yes' if y else 'no'}" for (a, b), y in zip(x, sick, strict=True))
    (shell.folder / "rows.csv").write_text("\n".join(["a,b,y", *lines]))
    place = f'path = "{shell.folder / "rows.csv"}"\nlabel = "y"'
    own = BASE.replace('name = "breast-cancer"', place)
    own = own.replace("positive = 0\nlimit = 0.15", 'positive = "yes"\nlimit = 0.1')
    found = run(shell, text=own.replace("limit = 0.5\n", "limit = 5.0\n"))
    certificate = found["certificate"]
    assert certificate["certified"] is True
    assert [entry["multiplier"] for entry in certificate["constraints"]] == [None, None]
    assert certificate["prices"].startswith("prices are not shown")
    assert "no better than that of a constant prediction" in found["notes"][0]
    text = " ".join(found["notes"][1:])
    assert certificate["converged"] or "training is not finished" in text
