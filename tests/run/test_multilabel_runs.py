"""Several labels at once from a TOML file: results, predictions, exports, and bad input."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.utils.estimator_checks import check_classifier_multioutput

from fedssca import FederatedClassifier, UserError, load_model
from fedssca.report.card import card_page
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.export.classifier import export_classifier
from fedssca.run.export.onnx_files import export_onnx
from fedssca.run.export.program import export_program
from fedssca.run.model import predict_rows
from tests.cli_helpers import Shell

LABELS = ("progression > 140", "bp > 95", "s6 > 90")
TOML = """
[data]
name = "diabetes"
label = ["progression > 140", "bp > 95", "s6 > 90"]
clients = 3
[model]
hidden = 8
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
[algorithm]
batch = 20
rounds = 41
[run]
evaluate_every = 20
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels") / "run"
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


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def truth() -> np.ndarray:
    raw = load_diabetes(as_frame=True, scaled=False)
    columns = [raw.target > 140, raw.data["bp"] > 95, raw.data["s6"] > 90]
    return np.stack(columns, axis=1).astype(int)


def test_a_run_reports_every_label(trained: Path) -> None:
    result = json.loads((trained / "result.json").read_text())
    assert result["feasible"]
    assert 0.5 < result["test_label_accuracy"] < 1
    assert result["test_exact_match"] < result["test_label_accuracy"]
    each = result["test_per_label"]
    assert tuple(each) == LABELS
    assert result["test_auc"] == pytest.approx(np.mean([own["auc"] for own in each.values()]))
    assert result["test_cost"] == pytest.approx(
        np.mean([own["log_loss"] for own in each.values()]), rel=1e-4
    )
    for name in LABELS:
        assert result[f"test_accuracy[{name}]"] == pytest.approx(each[name]["accuracy"])
    titles = [entry["title"] for entry in result["certificate"]["limits"]]
    assert titles[0] == "fnr of 'bp > 95'"
    assert titles[1] == "error about 'progression > 140', sex = 1"
    assert "test_accuracy" not in result


def test_predictions_have_a_column_for_each_label(trained: Path, table: Path, shell: Shell) -> None:
    model = load_model(trained)
    assert model.classes == LABELS
    chances, found = model.predict_proba(table), model.predict(table)
    np.testing.assert_array_equal(found, chances > 0.5)
    given = predict_rows(model, table, "rows.csv").evaluation
    assert given is not None
    assert given["auc"] == pytest.approx(roc_auc_score(truth(), chances))
    assert given["f1_micro"] == pytest.approx(f1_score(truth(), found, average="micro"), rel=1e-5)
    assert given["limits"][0]["value"] == pytest.approx(1 - found[truth()[:, 1] == 1, 1].mean())
    out = table.parent / "predicted.csv"
    said = shell("predict", trained, table, "--out", out)
    assert "442 rows predicted" in said.out
    told = list(csv.reader(out.read_text().splitlines()))
    assert told[0] == [*LABELS, *(f"p[{name}]" for name in LABELS)]
    assert [list(map(int, line[:3])) for line in told[1:]] == found.tolist()
    lacking = {name: [1.0] for name in model.inputs}
    assert predict_rows(model, lacking, "one row").evaluation is None


def test_exports_predict_the_same(trained: Path, table: Path, tmp_path: Path) -> None:
    model = load_model(trained)
    expected = model.predict_proba(table)
    frame = pd.read_csv(table)
    (path,) = export_classifier(model, tmp_path / "model.pkl")
    back = pickle.loads(path.read_bytes())
    np.testing.assert_array_equal(back.predict_proba(frame), expected)
    assert back.predict(frame).shape == (442, 3)
    runtime = pytest.importorskip("onnxruntime")
    (path,) = export_onnx(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(path)
    inputs = {each.name: frame[each.name].to_numpy(float) for each in session.get_inputs()}
    found, chances = session.run(["prediction", "probabilities"], inputs)
    np.testing.assert_allclose(chances, expected, atol=1e-5)
    clear = np.abs(expected - 0.5) > 1e-4
    np.testing.assert_array_equal(found[clear], expected[clear] > 0.5)
    torch = pytest.importorskip("torch")
    export_program(model, tmp_path / "model.pt2")
    x = torch.tensor(model.encode(model.table(table)))
    scores = torch.export.load(tmp_path / "model.pt2").module()(x)
    np.testing.assert_allclose(torch.sigmoid(scores).detach().numpy(), expected, atol=1e-5)


def test_pages_and_descriptions_show_labels(trained: Path, shell: Shell, tmp_path: Path) -> None:
    card = card_page(trained, markdown=True)
    assert "says which of 3 labels a row has: progression" in card
    assert shell("report", trained, "-o", tmp_path / "report.html").code == 0
    (tmp_path / "run.toml").write_text(TOML)
    said = shell("data", "describe", tmp_path / "run.toml").out
    assert "labels: progression > 140 221 (50.0%)" in said.replace("\n", " ")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (['data.label="y"'], 'problem.task = "multilabel" needs several labels'),
        (["problem.task=classification", "problem.constraint=[]"], "has one label"),
        (['data.label=["a", "a"]', "problem.constraint=[]"], "name two or more labels, each once"),
        (['problem.constraint.0.positive="bp"'], "positive = 'bp' is no label: set positive to"),
        (['problem.constraint=[{kind="fpr", limit=0.1}]'], "is about one label, and it needs one"),
        (['problem.class_weights="balanced"'], "a multilabel has no classes to weigh"),
        (["problem.loss=huber"], "a multilabel has the cross-entropy"),
        (['problem.constraint=[{kind="mae", limit=1.0}]'], "no constraint of kind 'mae'"),
    ],
)
def test_refused_before_data_are_read(settings: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said.replace("[", r"\[")):
        parse(TOML, settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.name=digits"], "digits has its own label: several labels at once need"),
        (['data.label=["progression > 140", "pulse > 3"]'], "no column for the label 'pulse > 3'"),
        (['data.label=["progression > 140", "age"]'], "the label 'age' is neither 0 nor 1 in row"),
        (['data.label=["progression > 999", "bp > 95"]'], "no training row has the label"),
    ],
)
def test_refused_with_the_data(settings: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        execute(parse(TOML, ["problem.constraint=[]", *settings]), tmp_path / "run")


@pytest.mark.filterwarnings("ignore")
def test_the_classifier_takes_a_table_of_labels() -> None:
    raw = load_diabetes(as_frame=True, scaled=False)
    y = pd.DataFrame(truth(), columns=["ill", "pressure", "sugar"])
    rest = raw.data.drop(columns=["bp", "s6"])
    limit = {"kind": "fnr", "limit": 0.2, "positive": "pressure"}
    model = FederatedClassifier("linear", constraints=[limit], rounds=30, encode=True)
    model.fit(rest, y)
    assert model.multilabel_
    assert model.classes_.tolist() == ["ill", "pressure", "sugar"]
    found = model.predict(rest)
    assert found.shape == (442, 3)
    missed = 1 - found[y["pressure"] == 1, 1].mean()
    (entry,) = model.result_.certificate["limits"]
    assert entry["value"] == pytest.approx(missed, abs=1e-5)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(rest), model.predict_proba(rest))
    with pytest.raises(UserError, match="no training row has the label 'sugar'"):
        model.fit(rest, y.assign(sugar=0))
    with pytest.raises(UserError, match="needs positive"):
        FederatedClassifier(constraints=[{"kind": "fnr", "limit": 0.2}]).fit(rest, y)
    with pytest.raises(UserError, match="class_weight is for one label per row"):
        FederatedClassifier(class_weight="balanced").fit(rest, y)


@pytest.mark.long
def test_scikit_learn_accepts_it_for_several_labels() -> None:
    check_classifier_multioutput("FederatedClassifier", FederatedClassifier("linear", rounds=5))
