"""Exported models predict raw rows as `fedssca predict` does: ONNX, scikit-learn and PyTorch."""

from __future__ import annotations

import csv
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca import load_model
from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.export.classifier import ExportedClassifier, export_classifier
from fedssca.run.export.onnx_files import export_onnx
from fedssca.run.export.program import export_program, module_of
from fedssca.run.model import TrainedModel
from fedssca.system import pip_install
from tests.cli_helpers import SMALL, Shell

DATA = Path(__file__).parents[3] / "shared/data"
CONFIG = """
[data]
path = "{path}"
label = "state"
clients = 3
[model]
hidden = 4
[algorithm]
name = "sgd"
rate = 0.5
batch = 8
rounds = 20
"""
MIXED = [
    "data.categories=['ward', 'floor']",
    "data.missing=['-9', 'none']",
    "data.most_categories=4",
]
HEART = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
         "slope", "ca", "thal", "num"]  # fmt: skip
ADULT = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
         "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
         "native-country", "income"]  # fmt: skip
Columns = dict[str, list[str]]


def cells(rows: int = 240) -> Columns:
    """Text as a file has it: numbers, dates, booleans, codes, names with odd characters."""
    draw = np.random.default_rng(3)

    def some(kinds: Sequence[str], blanks: Sequence[str] = ()) -> list[str]:
        places = draw.integers(len(kinds), size=rows)
        blank = draw.random(rows) < (0.15 if blanks else 0)
        cells = np.where(blank, draw.choice([*blanks, ""], rows), np.array(kinds)[places])
        return [str(cell) for cell in cells]

    age = draw.normal(50, 9, rows).round(2)
    days = np.datetime64("2019-03-01") + draw.integers(0, 900, rows)
    sick = age / 9 + draw.normal(0, 1, rows) > 5.5
    return {
        "patient": [f"p{i:03d}" for i in range(rows)],
        "age in years": [str(v) if draw.random() > 0.1 else "-9" for v in age],
        "dose": some(["0.5", "1e-3", "12"]),
        "seen": [str(v) if draw.random() > 0.1 else "?" for v in days],
        "smokes": some(["yes", "No", "YES"], ["", "none"]),
        "town": some(["Köln", "St. John's (old)", "a+b|c", "New York", "x", "y\\d"], ["NA", ""]),
        "ward": some(["1", "2", "10"], ["-9"]),
        "floor": some(["1", "2", "3", "4", "5", "6.5"]),
        "one": ["7"] * rows,
        "state": ["krank" if s else "gesund" for s in sick],
    }


def write(path: Path, columns: Mapping[str, Sequence[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def new_cells() -> Columns:
    """Rows with values that no training row had, and spaces at the ends of cells."""
    fresh = cells(60)
    fresh["town"][:3] = ["Zürich", " Köln ", "x\u00a0"]
    fresh["smokes"][:4] = ["yes ", " nO", "1", "0"]
    fresh["ward"][:2] = ["99", "1.0"]
    fresh["floor"][:2] = ["77", ""]
    fresh["dose"][0] = ""
    fresh["seen"][0] = "1999-12-31"
    return fresh


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on the mixed table: clients with rows, and parties with columns."""
    folder = tmp_path_factory.mktemp("export")
    path = write(folder / "rows.csv", cells())
    for name, settings in {
        "rows": [],
        "columns": ["data.split=feature"],
        "bottoms": [
            "data.split=feature",
            "model.bottom=[12, 8]",
            "model.join=concatenate",
            "algorithm.rounds=60",
        ],
        "linear": ["model.name=linear", "run.precision=float64"],
    }.items():
        with pytest.warns(UserWarning, match="'patient' is left out"):
            execute(parse(CONFIG.format(path=path), [*MIXED, *settings]), folder / name)
    return folder


def fed(session: Any, columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The inputs of an ONNX file from cells of text, without the code of fedssca."""
    told = json.loads(session.get_modelmeta().custom_metadata_map["columns"])
    assert [each.name for each in session.get_inputs()] == list(told)
    found: dict[str, Any] = {}
    for name, entry in told.items():
        blank = [cell.strip() in ("", "?", "NA") for cell in columns[name]]
        if entry["kind"] == "date":
            shown = ["NaT" if b else c for b, c in zip(blank, columns[name], strict=True)]
            days = np.array(shown, "datetime64[D]")
            found[name] = np.where(np.isnat(days), np.nan, days.astype(float))
        elif entry["tensor"] == "double":
            found[name] = np.array(
                [np.nan if b else float(c) for b, c in zip(blank, columns[name], strict=True)]
            )
        else:
            found[name] = np.array(columns[name], object)
    return found


def predicted(paths: list[Path], columns: Mapping[str, Sequence[str]]) -> tuple[Any, Any]:
    """What onnxruntime gives: the classes, and the probabilities."""
    runtime = pytest.importorskip("onnxruntime")
    *parties, head = (runtime.InferenceSession(path) for path in paths)
    if not parties:
        return tuple(head.run(["prediction", "probabilities"], fed(head, columns)))
    hs = {f"h_{i}": party.run(["h"], fed(party, columns))[0] for i, party in enumerate(parties, 1)}
    return tuple(head.run(["prediction", "probabilities"], hs))


def agrees(model: TrainedModel, found: tuple[Any, Any], rows: Any) -> None:
    expected = model.predict_proba(rows)
    assert found[1].dtype == expected.dtype
    assert found[1] == pytest.approx(expected, abs=1e-5)
    clear = np.diff(np.sort(expected, axis=1)[:, -2:], axis=1)[:, 0] > 1e-5
    assert found[0][clear].tolist() == model.predict(rows)[clear].tolist()
    assert clear.mean() > 0.9  # the others are ties


@pytest.mark.parametrize("name", ["rows", "columns", "bottoms", "linear"])
def test_onnx_predicts_raw_cells(name: str, runs: Path, tmp_path: Path) -> None:
    """Dates, booleans, codes, markers of missing cells, other and unseen values, odd characters."""
    pytest.importorskip("onnx")
    model = load_model(runs / name)
    assert model.encoder is not None
    kinds = {column.name: column.kind for column in model.encoder.columns}
    assert set(kinds.values()) == {"number", "date", "boolean", "category"}
    assert set(kinds) == cells().keys() - {"patient", "state"}
    files = export_onnx(model, tmp_path / "m.onnx")
    apart = name in ("columns", "bottoms")
    parts = ["m-party-1", "m-party-2", "m-party-3", "m-head"] if apart else ["m"]
    assert [path.name for path in files] == [f"{part}.onnx" for part in parts]
    for columns in (cells(), new_cells()):
        rows = write(tmp_path / "new.csv", columns)
        assert np.ptp(model.predict_proba(rows)[:, 0]) > 0.1
        agrees(model, predicted(files, columns), rows)


def test_onnx_marks_rows_that_predict_refuses(runs: Path, tmp_path: Path) -> None:
    """A graph cannot raise an error: probabilities are NaN, and no class is named."""
    pytest.importorskip("onnx")
    for name in ("rows", "columns"):
        model = load_model(runs / name)
        files = export_onnx(model, tmp_path / "m.onnx")
        columns = new_cells()
        columns["smokes"][5], columns["age in years"][7] = "perhaps", "inf"
        with pytest.raises(UserError, match=r"holds inf in row 8|perhaps"):
            model.predict(write(tmp_path / "new.csv", columns))
        names, chances = predicted(files, columns)
        assert np.flatnonzero(np.isnan(chances).all(axis=1)).tolist() == [5, 7]
        assert np.isfinite(np.delete(chances, [5, 7], axis=0)).all()
        assert np.flatnonzero(names == "").tolist() == [5, 7]


def test_onnx_files_tell_what_they_are(runs: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    (file,) = export_onnx(load_model(runs / "rows"), tmp_path / "m.onnx")
    told = runtime.InferenceSession(file).get_modelmeta()
    assert told.producer_name == "fedssca"
    own = told.custom_metadata_map
    saved = json.loads((runs / "rows/model/model.json").read_text())
    assert own["digest"] == saved["digest"]
    assert json.loads(own["classes"]) == ["gesund", "krank"]
    assert json.loads(own["versions"]) == saved["versions"]
    assert json.loads(own["columns"])["ward"] == {"kind": "category", "tensor": "double"}


@pytest.mark.parametrize(
    "settings",
    [
        ["model.name=linear"],
        ["model.name=cnn", "model.image=[4, 6]", "model.channels=[3]", "model.parties=2"],
        ["model.name=cnn", "model.image=[4, 3, 2]", "model.pooling=mean", "model.channels=[2]"],
    ],
)
def test_arrays_are_one_input(settings: list[str], tmp_path: Path) -> None:
    """Images have no encoder: x is multiplied by the scale inside the graph."""
    runtime = pytest.importorskip("onnxruntime")
    draw = np.random.default_rng(0)
    x = draw.integers(0, 9, (60, 24)).astype(np.uint8)
    np.savez(tmp_path / "rows.npz", x=x, y=x[:, :4].argmax(axis=1))
    config = parse(CONFIG.format(path=tmp_path / "rows.npz"), ["data.label=", *settings])
    execute(config, tmp_path / "run")
    model = load_model(tmp_path / "run")
    (file,) = export_onnx(model, tmp_path / "m.onnx")
    session = runtime.InferenceSession(file)
    found = session.run(["prediction", "probabilities"], {"x": x.astype(np.float32)})
    assert found[0].dtype == np.int64
    agrees(model, found, tmp_path / "rows.npz")
    encoded = model.encode(model.table(tmp_path / "rows.npz"))
    torch = pytest.importorskip("torch")
    scores = module_of(model)(torch.tensor(encoded)).detach().numpy()
    assert scores == pytest.approx(model.scores(encoded), abs=1e-5)


def raw_lines(path: Path, names: Sequence[str], rows: int) -> Columns:
    """Cells of a file as they stand there, with their spaces; it has a header or these names."""
    lines = [row for row in csv.reader(path.read_text().splitlines()) if len(row) > 2]
    header, begin = (names, 0) if names else (lines[0], 1)
    return dict(zip(header, map(list, zip(*lines[begin : begin + rows], strict=True)), strict=True))


def raw_files() -> Iterator[Any]:
    adult, credit, heart = (
        DATA / "tabular/adult.test",
        DATA / "tabular/UCI_Credit_Card.csv",
        DATA / "heart/processed.hungarian.data",
    )
    many = "data.clients=3"
    yield pytest.param(
        adult, ADULT, ["data.path=", "data.name=adult", f"data.dir={adult.parent}", "data.label="],
        id="adult", marks=pytest.mark.skipif(not adult.is_file(), reason="needs Adult"),
    )  # fmt: skip
    for name, how in {
        "credit": ["data.path=", "data.name=credit", f"data.dir={credit.parent}", "data.label="],
        "credit-file": [
            f"data.path={credit}", "data.label=default.payment.next.month", many,
            "data.categories=['SEX', 'EDUCATION']",
        ],
    }.items():  # fmt: skip
        yield pytest.param(
            credit, (), how,
            id=name, marks=pytest.mark.skipif(not credit.is_file(), reason="needs the credit data"),
        )  # fmt: skip
    yield pytest.param(
        heart, HEART,
        [f"data.path={heart.parent}/*.data", "data.label=num > 0", f"data.columns={HEART}",
         "data.categories=['cp', 'thal']", "algorithm.batch=5"],
        id="heart", marks=pytest.mark.skipif(not heart.is_file(), reason="needs heart disease"),
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:column .* is left out")
@pytest.mark.parametrize(("file", "names", "settings"), [*raw_files()])
def test_onnx_predicts_raw_files(
    file: Path, names: Sequence[str], settings: list[str], tmp_path: Path
) -> None:
    """1,000 rows of files as they were downloaded (heart disease has 294 in one hospital)."""
    pytest.importorskip("onnx")
    execute(parse(CONFIG.format(path=""), settings), tmp_path / "run")
    model = load_model(tmp_path / "run")
    columns = raw_lines(file, names, 1000)
    rows = write(tmp_path / "new.csv", columns)
    assert len(columns["age" if names else "AGE"]) == (294 if "heart" in str(file) else 1000)
    agrees(model, predicted(export_onnx(model, tmp_path / "m.onnx"), columns), rows)


def test_the_pickle_is_a_classifier(runs: Path, tmp_path: Path) -> None:
    """Loaded in another process, in a Pipeline, with DataFrames and arrays of raw cells."""
    pandas = pytest.importorskip("pandas")
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline

    model = load_model(runs / "rows")
    (file,) = export_classifier(model, tmp_path / "m.pkl")
    loaded = pickle.loads(file.read_bytes())
    assert isinstance(loaded, ExportedClassifier)
    assert is_classifier(loaded)
    assert loaded.classes_.tolist() == ["gesund", "krank"]
    names = loaded.feature_names_in_.tolist()
    assert names == list(model.inputs)
    assert loaded.n_features_in_ == 8
    frame = pandas.read_csv(write(tmp_path / "new.csv", cells()))
    expected = model.predict_proba(frame)
    pipeline = make_pipeline("passthrough", loaded)
    for rows in (frame, frame[names].to_numpy(), frame[names[::-1]]):
        assert pipeline.predict_proba(rows).tobytes() == expected.tobytes()
    assert pipeline.fit(frame, frame["state"]).predict(frame).tolist() == list(model.predict(frame))
    right = (model.predict(frame) == frame["state"]).mean()
    assert loaded.score(frame, frame["state"]) == pytest.approx(right)
    assert cross_val_score(clone(loaded), frame, frame["state"], cv=3).mean() == pytest.approx(
        right
    )
    with pytest.raises(UserError, match="an array with the 8 columns age in years, dose"):
        loaded.predict(np.zeros((2, 3)))
    first = frame[names].iloc[0].fillna("").astype(str).tolist()
    code = f"import pickle; print(pickle.load(open({str(file)!r}, 'rb')).predict([{first}])[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == model.predict(frame.iloc[:1])[0]


def test_the_program_needs_pytorch_only(runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    model = load_model(runs / "linear")
    program, beside = export_program(model, tmp_path / "m.pt2")
    told = json.loads(beside.read_text())
    assert told["features"] == list(model.features)
    assert told["classes"] == ["gesund", "krank"]
    assert told["encoder"] == model.encoder.state()
    x = model.encode(model.table(runs / "rows.csv")).astype(model.network.dtype)
    np.save(tmp_path / "x.npy", x)
    code = f"""
import numpy as np, sys, torch
module = torch.export.load({str(program)!r}).module()
chances = torch.softmax(module(torch.from_numpy(np.load({str(tmp_path / "x.npy")!r}))), dim=1)
np.save({str(tmp_path / "p.npy")!r}, chances.detach().numpy())
assert "fedssca" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    found = np.load(tmp_path / "p.npy")
    assert found == pytest.approx(model.predict_proba(runs / "rows.csv"), abs=1e-6)


@pytest.mark.parametrize(
    ("activation", "more"),
    [
        ("relu", ["model.hidden=[4, 3]", "model.layer_norm=true"]),
        ("tanh", ["model.bottom=[[4, 3], [3]]", "model.parties=2"]),
        ("sigmoid", []),
    ],
)
def test_all_activations(activation: str, more: list[str], tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    torch = pytest.importorskip("torch")
    from sklearn.datasets import load_breast_cancer

    settings = [f"model.activation={activation}", "algorithm.rounds=3", *more]
    execute(parse(SMALL, settings), tmp_path / "run")
    model, raw = load_model(tmp_path / "run"), load_breast_cancer()
    table = {str(name): raw.data[:, j] for j, name in enumerate(raw.feature_names)}
    columns = {name: list(map(str, values)) for name, values in table.items()}
    agrees(model, predicted(export_onnx(model, tmp_path / "m.onnx"), columns), table)
    x = model.encode(table)
    scores = module_of(model)(torch.tensor(x)).detach().numpy()
    assert scores == pytest.approx(model.scores(x), abs=1e-4)  # float32, summed in another order


def test_the_command(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx")
    shell, run = Shell(tmp_path, monkeypatch, capsys), runs / "rows"
    said = shell("export", run, "--onnx", tmp_path / "m.onnx", "--sklearn", tmp_path / "m.pkl")
    assert said.out.splitlines() == [f"saved in {tmp_path}/m.onnx", f"saved in {tmp_path}/m.pkl"]
    told = json.loads(shell("export", runs / "columns", "--onnx", tmp_path / "v", "--json").out)
    assert told == {
        "files": [f"{tmp_path}/v-{end}" for end in ("party-1", "party-2", "party-3", "head")]
    }
    assert "name one run directory" in shell.refused("export", run, run, "--onnx", "m.onnx")
    assert "add --onnx FILE" in shell.refused("export", run)
    line = shell.refused("export", run, "--onnx", tmp_path / "none" / "m.onnx")
    assert "cannot write" in line
    assert "choose another file for --onnx" in line
    assert "holds no run" in shell.refused("export", tmp_path, "--onnx", tmp_path / "m.onnx")
    for package, option in (("onnx", "--onnx"), ("torch", "--torch")):
        place = {"onnx": "graph", "torch": "program"}[package]
        monkeypatch.setattr(f"fedssca.run.export.{place}.find_spec", lambda name: None)
        line = shell.refused("export", run, option, tmp_path / "m")
        assert pip_install(package) in line
