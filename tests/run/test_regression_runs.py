"""Regressions from a TOML file: metrics, predictions, saved models, exports, and bad input."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score, root_mean_squared_error

from fedssca import load_model
from fedssca.errors import UserError
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import execute, train
from fedssca.run.export.classifier import export_classifier
from fedssca.run.export.onnx_files import export_onnx
from fedssca.run.export.program import export_program
from fedssca.run.model import predict_rows
from tests.cli_helpers import Shell

TOML = """
[data]
name = "diabetes"
clients = 4
[model]
name = "linear"
[problem]
task = "regression"
[[problem.constraint]]
kind = "mae"
limit = 44.2
column = "sex"
[[problem.constraint]]
kind = "beyond"
bound = 100
limit = 0.1
[algorithm]
batch = 20
rounds = 41
[run]
evaluate_every = 20
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regression") / "run"
    execute(parse(TOML), folder)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    raw = load_diabetes(scaled=False)
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*raw.feature_names, "progression"])
        writer.writerows(np.c_[raw.data, raw.target].tolist())
    return path


def test_a_run_reports_errors_in_the_unit_of_its_target(trained: Path) -> None:
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert {"test_rmse", "test_mae", "test_r2", "train_cost"} <= set(rows[-1])
    assert "test_accuracy" not in rows[-1]
    result = json.loads((trained / "result.json").read_text())
    assert 45 < result["test_rmse"] < 65
    assert result["feasible"]
    limits = {entry["name"]: entry for entry in result["certificate"]["limits"]}
    assert limits["mae_sex_1"]["value"] <= 44.2
    assert limits["beyond"]["counts"][0][1] == 354


def test_saved_models_predict_and_evaluate_as_the_run_did(trained: Path, table: Path) -> None:
    model = load_model(trained)
    found = predict_rows(model, table, "rows.csv")
    raw = load_diabetes(scaled=False)
    assert found.evaluation is not None
    assert found.numbers is not None
    rmse = root_mean_squared_error(raw.target, found.numbers)
    assert found.evaluation["rmse"] == pytest.approx(rmse, rel=1e-5)
    assert found.evaluation["r2"] == pytest.approx(r2_score(raw.target, found.numbers), rel=1e-5)
    assert found.evaluation["limits"][0]["name"] == "mae_sex_1"
    with pytest.raises(UserError, match="no probabilities"):
        model.predict_proba(table)


def test_exports_predict_the_same_numbers(trained: Path, table: Path, tmp_path: Path) -> None:
    model = load_model(trained)
    raw, numbers = load_diabetes(scaled=False), load_model(trained).predict(table)
    (path,) = export_classifier(model, tmp_path / "model.pkl")
    again = pickle.loads(path.read_bytes())
    np.testing.assert_allclose(again.predict(raw.data), numbers)
    assert again.score(raw.data, raw.target) == pytest.approx(r2_score(raw.target, numbers))
    torch = pytest.importorskip("torch")
    program, _ = export_program(model, tmp_path / "model.pt2")
    x = torch.tensor(model.encode(model.table(table)))
    scores = torch.export.load(program).module()(x)[:, 0].detach().numpy()
    np.testing.assert_allclose(scores, numbers, rtol=1e-5)
    runtime = pytest.importorskip("onnxruntime")
    (file,) = export_onnx(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(file))
    inputs = {each.name: each for each in session.get_inputs()}
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    feed = {
        name: raw.data[:, j]
        .astype(kinds[inputs[name].type])
        .reshape((-1, 1) if len(inputs[name].shape) == 2 else (-1,))
        for j, name in enumerate(raw.feature_names)
    }
    np.testing.assert_allclose(session.run(["prediction"], feed)[0], numbers, rtol=1e-5)


def test_commands_show_the_metrics_of_a_regression(
    trained: Path,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    shown = shell("predict", str(trained), str(table), "--out", tmp_path / "out.csv").out
    assert "RMSE" in shown
    assert "R²" in shown
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "prediction"
    given = ["--label", "progression", "--set", "problem.task=regression"]
    told = shell("data", "describe", str(table), *given).out
    assert "trained in its own unit: mean" in told


LINES = [
    (["problem.loss=cubic"], "squared"),
    (["problem.quantile=0.9"], 'problem.quantile = 0.9: only loss = "quantile" uses it'),
    (["problem.huber_width=2"], 'only loss = "huber" uses it'),
    (["problem.task=classification", "problem.constraint=[]"], 'problem.task = "regression"'),
    (['problem.constraint=[{kind="fnr",limit=0.1}]'], "a regression has no constraint of kind"),
    (['problem.constraint=[{kind="beyond",limit=0.1}]'], "needs bound"),
    (["problem.confidence=0.9"], "cannot be certified"),
    (["problem.task=classification", "problem.loss=huber"], "cross-entropy"),
    (["data.name=adult", "problem.constraint=[]"], "has classes"),
]


@pytest.mark.parametrize(("settings", "words"), LINES)
def test_bad_input_is_one_line(settings: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words) as caught:
        execute(parse(TOML, settings), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_bad_targets_of_a_table_are_one_line(tmp_path: Path) -> None:
    for cells, loss, words in (
        (["1.5"] * 40, "squared", "nothing to predict"),
        ([f"{i - 5}.0" for i in range(40)], "poisson", "counts, which are 0 or more"),
        ([f"word {i % 7}" for i in range(40)], "squared", "text or no column of numbers"),
    ):
        path = tmp_path / "rows.csv"
        path.write_text("a,y\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells)))
        given = [f"data.path={path}", "problem.constraint=[]", f"problem.loss={loss}"]
        with pytest.raises(UserError, match=words):
            execute(parse(TOML, given), tmp_path / "run")
    path.write_text("a,y\n" + "".join(f"{i},{i / 7}\n" for i in range(40)))
    with pytest.raises(UserError, match=r'predict the number: problem.task = "regression"'):
        execute(parse("", [f"data.path={path}"]), tmp_path / "run")


@pytest.mark.filterwarnings("ignore")
def test_the_share_of_large_errors_is_certified() -> None:
    """The p-value is that of so few hits among the calibration rows, if the share were 20 %."""
    job = build(
        parse(
            TOML,
            ["problem.confidence=0.9", "algorithm.rounds=20",
             "problem.constraint=[{kind='beyond',bound=100,limit=0.2}]"],
        )
    )  # fmt: skip
    result = train(job)
    assert job.calibration is not None
    rows = job.calibration.rows
    assert job.problem.scores is not None
    assert job.dataset.target is not None
    error = np.asarray(job.problem.scores(result.w, rows))[:, 0] - rows["y"]
    hits = int((np.abs(error) * job.dataset.target.scale > 100).sum())
    (claim,) = result.certificate["claims"]
    assert claim["evidence"]["hits"] == [hits]
    assert claim["p_value"] == pytest.approx(binom.cdf(hits, len(error), 0.2), rel=1e-6)
    assert result.certificate["certified"] == (claim["p_value"] <= 0.1)
