"""The saved model of a run: raw rows in, the predictions and the metrics of the run out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca import load_model
from fedssca.data.tables import read_csv, write_csv
from fedssca.errors import UserError
from fedssca.run.build import load_dataset
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.model import TrainedModel, predict_rows, write_predictions
from tests.cli_helpers import SMALL, result

TABULAR = Path(__file__).parents[3] / "shared/data/tabular"
CONFIG = """
[data]
path = "{path}"
label = "state"
clients = 3
[model]
hidden = 4
[algorithm]
name = "sgd"
rate = 0.1
batch = 8
rounds = 6
"""
FNR = "problem.constraint=[{kind='fnr', limit=0.4, positive='sick', column='town'}]"
STEPS = [
    *("algorithm.name=ssca", "algorithm.rho={a=0.9,alpha=0.3}", "algorithm.tau=1.0"),
    *("algorithm.gamma={a=0.5,alpha=0.6}", "algorithm.multipliers=exact"),
]


def cells(rows: int = 240) -> dict[str, np.ndarray]:
    """An id, a number, a number with missing cells, a category, and the label."""
    rng = np.random.default_rng(1)
    age, dose = rng.normal(50, 9, rows).round(2), rng.exponential(3, rows).round(3)
    town = rng.choice(["north", "south", "west"], rows)
    sick = age / 9 + dose + (town == "west") + rng.normal(0, 1, rows) > 9
    dose[rng.random(rows) < 0.1] = np.nan
    return {
        "patient": np.array([f"p{i:03d}" for i in range(rows)]),
        "age": age,
        "dose": dose,
        "town": town,
        "state": np.where(sick, "sick", "well"),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a limit for each town, on a file with ids and missing cells."""
    folder = tmp_path_factory.mktemp("model")
    write_csv(folder / "rows.csv", cells())
    with pytest.warns(UserWarning, match="'patient' is left out"):
        execute(parse(CONFIG.format(path=folder / "rows.csv"), [FNR, *STEPS]), folder / "run")
    return folder / "run"


@pytest.fixture
def model(run: Path) -> TrainedModel:
    return load_model(run)


def test_probabilities_by_hand(model: TrainedModel) -> None:
    """Standardised age and dose, the mark of a missing dose, three towns; then the network."""
    raw = cells()
    config = model.config
    with pytest.warns(UserWarning, match="'patient' is left out"):
        dataset = load_dataset(config)
    assert dataset.encoder == model.encoder
    age, dose = model.encoder.columns[:2]
    x = np.array(
        [
            (raw["age"][0] - age.mean) / age.deviation,
            (raw["dose"][0] - dose.mean) / dose.deviation,
            0.0,
            *(raw["town"][0] == town for town in ("north", "south", "west")),
        ]
    )
    w0, w1 = model.w[:8].reshape(2, 4), model.w[8:].reshape(4, 6)
    h = w1 @ x
    odds = np.exp(w0 @ (h / (1 + np.exp(-h))))
    found = model.predict_proba({name: v[:1] for name, v in raw.items()})
    assert found[0] == pytest.approx(odds / odds.sum(), abs=1e-6)
    assert model.classes == ("sick", "well")


def test_files_frames_and_mappings_predict_alike(model: TrainedModel, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    raw = {name: v for name, v in cells().items() if name != "state"}
    write_csv(tmp_path / "new.csv", raw)
    frame = pandas.read_csv(tmp_path / "new.csv")
    write_csv(tmp_path / "new.csv.part", raw)
    frame.to_csv(tmp_path / "new.csv.gz", sep=";", index=False)
    frame.to_parquet(tmp_path / "new.parquet")
    files = [tmp_path / name for name in ("new.csv", "new.csv.gz", "new.parquet")]
    first, *others = (model.predict_proba(rows) for rows in (raw, frame, *files))
    for other in others:
        assert other.tobytes() == first.tobytes()
    assert set(model.predict(str(files[0]))) <= {"sick", "well"}


def held_out(run: Path) -> dict[str, np.ndarray]:
    """The raw rows that the run set aside, in their order."""
    from fedssca.data.dataset import in_train

    raw = cells()
    y = np.unique(raw["state"], return_inverse=True)[1].astype(np.int32)
    train = in_train("rows", y, 0.2, 0)
    return {name: v[~train] for name, v in raw.items()}


def test_raw_test_rows_give_the_reported_metrics(run: Path, model: TrainedModel) -> None:
    found = predict_rows(model, held_out(run), "the rows")
    agrees(found.evaluation, result(run))
    assert found.ids["patient"] == held_out(run)["patient"].tolist()
    right = np.array(found.predicted) == held_out(run)["state"]
    assert found.evaluation["accuracy"] == pytest.approx(right.mean(), abs=1e-12)


def agrees(evaluation: dict[str, Any] | None, reported: dict[str, Any]) -> None:
    """The same numbers, to the last bit."""
    assert evaluation is not None
    own = {n.removeprefix("test_"): v for n, v in reported.items() if n.startswith("test_")}
    assert {n: evaluation[n] for n in own} == own
    for limit, told in zip(evaluation["limits"], reported["certificate"]["limits"], strict=True):
        assert limit["title"] == told["title"]
        assert limit["value"] == told["test_value"]
        assert limit["counts"] == told["test_counts"]
        assert limit["kept"] == told["test_feasible"]


@pytest.mark.skipif(not (TABULAR / "adult.test").is_file(), reason="needs the file of Adult")
def test_the_raw_test_file_of_adult_gives_the_reported_metrics(tmp_path: Path) -> None:
    limit = "problem.constraint=[{kind='parity', limit=0.05, column='race'}]"
    settings = ["data.name=adult", f"data.dir={TABULAR}", "data.path=", "data.label=", limit]
    execute(parse(CONFIG.format(path=""), [*settings, *STEPS]), tmp_path / "run")
    model = load_model(tmp_path / "run")
    found = predict_rows(model, TABULAR / "adult.test", "adult.test")
    agrees(found.evaluation, result(tmp_path / "run"))
    assert found.probabilities.shape == (16281, 2)
    without = {n: v for n, v in model.table(TABULAR / "adult.test").items() if n != "income"}
    write_csv(tmp_path / "new.csv", without)
    lines = (tmp_path / "new.csv").read_text().splitlines()
    (tmp_path / "bare.csv").write_text("\n".join(lines[1:]) + "\n")  # neither header nor label
    for file in ("new.csv", "bare.csv"):
        assert model.predict_proba(tmp_path / file).tobytes() == found.probabilities.tobytes()


@pytest.mark.skipif(not (TABULAR / "UCI_Credit_Card.csv").is_file(), reason="needs the file")
def test_raw_test_rows_of_credit_give_the_reported_metrics(tmp_path: Path) -> None:
    """The file has an ID and SEX, in place of which the model knows sex."""
    from fedssca.data.dataset import in_train

    limit = "problem.constraint=[{kind='opportunity', limit=0.05, column='sex'}]"
    settings = ["data.name=credit", f"data.dir={TABULAR}", "data.path=", "data.label=", limit]
    execute(parse(CONFIG.format(path=""), [*settings, *STEPS]), tmp_path / "run")
    raw = read_csv(TABULAR / "UCI_Credit_Card.csv")
    y = raw["default.payment.next.month"].astype(np.int32)
    held = ~in_train("credit", y, 0.2, 0)
    write_csv(tmp_path / "test.csv", {name: v[held] for name, v in raw.items()})
    found = predict_rows(load_model(tmp_path / "run"), tmp_path / "test.csv", "test.csv")
    agrees(found.evaluation, result(tmp_path / "run"))
    assert found.ids["ID"] == [str(v) for v in raw["ID"][held]]  # as they stand in the file


def test_unseen_categories_and_rows_without_labels_are_counted(model: TrainedModel) -> None:
    raw = cells(20)
    raw["town"][:3] = "east"
    raw["state"][5] = ""
    found = predict_rows(model, raw, "the rows")
    assert found.notes == (
        "column 'town': 3 cells hold a value that no training row had",
        "1 rows have no label and do not count in the evaluation",
    )
    assert found.evaluation is not None
    assert found.evaluation["rows"] == 19
    groups = [limit["counts"][0][1] for limit in found.evaluation["limits"]]
    sick = (raw["state"] == "sick") & (raw["town"] != "east")
    assert sum(groups) == sick.sum()  # the rows of "east" are in no group
    del raw["state"]
    assert predict_rows(model, raw, "the rows").evaluation is None


def test_one_line_per_row_with_ids_and_names_of_classes(model: TrainedModel) -> None:
    raw = {name: v[:2] for name, v in cells().items() if name != "state"}
    out = io.StringIO()
    write_predictions(predict_rows(model, raw, "the rows", keep=["town"]), out)
    header, first, _ = out.getvalue().splitlines()
    assert header == "patient,town,prediction,p[sick],p[well]"
    assert first.startswith(f"p000,{raw['town'][0]},")
    chances = [np.float32(cell) for cell in first.split(",")[-2:]]
    assert chances == model.predict_proba(raw)[0].tolist()


def test_arrays_are_predicted_from_npz(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (60, 4)).astype(np.uint8)
    y = (x[:, 0] > 4).astype(int)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    settings = ["data.label="]
    execute(parse(CONFIG.format(path=tmp_path / "rows.npz"), settings), tmp_path / "run")
    model = load_model(tmp_path / "run")
    assert model.encoder is None
    assert (
        model.predict(tmp_path / "rows.npz").tolist()
        == model.predict({f"x{j}": x[:, j] for j in range(4)}).tolist()
    )


def test_what_is_wrong_is_said_in_one_line(run: Path, tmp_path: Path) -> None:
    model, raw = load_model(run), cells(30)

    def refused(rows: Any, words: str) -> None:
        with pytest.raises(UserError, match=words) as error:
            predict_rows(model, rows, "new.csv")
        assert len(str(error.value).splitlines()) == 1

    renamed = {("Age" if n == "age" else n): v for n, v in raw.items()}
    refused(renamed, "new.csv: column 'age' is missing, which the model needs; did you mean 'Age'")
    refused({**raw, "age": raw["town"]}, "new.csv: column 'age' is text here, such as")
    refused({**raw, "town": raw["age"]}, "new.csv: column 'town' is numbers here, and text")
    refused({**raw, "state": raw["town"]}, "row 1 has the label '.*'; the classes are sick, well")
    refused({name: v[:0] for name, v in raw.items()}, "new.csv has no rows")
    refused(np.zeros((3, 4)), "are of type ndarray; give a DataFrame")
    (tmp_path / "empty.csv").write_text("")
    refused(tmp_path / "empty.csv", "is empty")
    refused(tmp_path / "nowhere.csv", "is not there")


def test_models_that_cannot_be_loaded(run: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"

    def refused(words: str) -> None:
        with pytest.raises(UserError, match=words) as error:
            load_model(copied)
        assert len(str(error.value).splitlines()) == 1

    refused("holds no run")
    names = ("config.toml", "result.json", "model/model.json", "model/weights.npz")
    (copied / "model").mkdir(parents=True)
    kept = {name: (run / name).read_bytes() for name in names}

    def restore() -> None:
        for name, content in kept.items():
            (copied / name).write_bytes(content)

    restore()
    load_model(copied)
    text = json.loads(kept["model/model.json"])
    text["encoder"]["columns"][0]["mean"] += 1
    for name, content in (
        ("model/model.json", json.dumps(text).encode()),
        ("model/model.json", b"{"),
        ("model/weights.npz", kept["model/weights.npz"][:-9]),
        ("model/weights.npz", kept["model/weights.npz"].replace(b"w.npy", b"v.npy")),
    ):
        restore()
        (copied / name).write_bytes(content)
        refused("model is damaged or was changed")
    (copied / "model/weights.npz").unlink()
    refused("model is damaged")
    restore()
    (copied / "result.json").unlink()
    refused("holds no finished run, so no model yet: .*--resume")
    restore()
    for name in names[2:]:
        (copied / name).unlink()
    (copied / "model").rmdir()
    refused("has no folder model/: it was written by an earlier version of fedssca; run it again")


def test_other_runs_have_models_too(tmp_path: Path) -> None:
    """Objectives of the worst client have one variable more; parties with columns have blocks."""
    worst = ["problem.objective=worst_client", "problem.constraint=[]", "algorithm.rounds=3"]
    for name, settings in (
        ("worst", worst),
        ("columns", ["data.split=feature", "algorithm.rounds=3"]),
        ("double", ["run.precision=float64", "algorithm.rounds=3"]),
    ):
        execute(parse(SMALL, settings), tmp_path / name)
        model = load_model(tmp_path / name)
        assert len(model.blocks) == (4 if name == "columns" else 0)
        table = _breast_cancer()
        found = predict_rows(model, table, "the rows")
        assert found.evaluation is not None
        assert found.probabilities.dtype == model.network.dtype
        told, rows = result(tmp_path / name), len(table["malignant"])
        test = len(load_dataset(model.config).test["y"])
        both = told["train_accuracy"] * (rows - test) + told["test_accuracy"] * test
        assert found.evaluation["accuracy"] == pytest.approx(both / rows, abs=1e-9)


def _breast_cancer() -> dict[str, np.ndarray]:
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    table = {str(name): raw.data[:, j] for j, name in enumerate(raw.feature_names)}
    return {**table, "malignant": 1.0 - raw.target}
