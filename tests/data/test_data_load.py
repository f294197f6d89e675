"""Data sets by name and from files; every refusal in one clear line."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.data import fetch, load
from fedssca.data.dataset import Dataset
from fedssca.errors import UserError
from fedssca.system import pip_install

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def held(name: str) -> Path:
    """A folder that holds the data set, or skip."""
    for root in (fetch.cache_folder(), SHARED, SHARED / "tabular"):
        if fetch.locate(name, root):
            return root
    pytest.skip(f"the files of {name} are not on this machine")


def write(folder: Path, text: str, name: str = "t.csv") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def refused(words: str, *args: Any, **options: Any) -> None:
    with pytest.raises(UserError, match=words) as caught:
        load(*args, **options)
    assert "\n" not in str(caught.value)


def same(a: Dataset, b: Dataset) -> bool:
    return all(np.array_equal(a.train[k], b.train[k]) for k in a.train)


def test_digits() -> None:
    data = load("digits")
    assert data.train["x"].dtype == np.uint8
    assert data.train["x"].shape == (1438, 64)
    assert data.test["x"].shape == (359, 64)
    assert data.train["x"].max() * data.scale == 1
    assert data.classes == 10
    assert same(data, load("digits"))
    assert not same(data, load("digits", seed=1))
    share = np.bincount(data.test["y"]) / np.bincount(data.train["y"])
    assert np.allclose(share, 0.25, atol=0.02)


def test_breast_cancer() -> None:
    data = load("breast-cancer", keep=["mean radius"])
    x, y = data.train["x"], data.train["y"]
    assert (data.classes, data.scale, x.dtype) == (2, 1.0, np.float32)
    assert np.allclose(x.mean(0), 0, atol=1e-4)
    assert np.allclose(x.std(0), 1, atol=1e-4)
    assert y.sum() + data.test["y"].sum() == 212  # malignant
    assert data.train["mean radius"][y == 1].mean() > data.train["mean radius"][y == 0].mean()


def test_mnist() -> None:
    data = load("mnist", directory=held("mnist"))
    assert data.train["x"].shape == (60000, 784)
    assert data.test["x"].shape == (10000, 784)
    assert data.train["x"].dtype == np.uint8
    assert data.train["y"][:5].tolist() == [5, 0, 4, 1, 9]
    assert np.bincount(data.test["y"]).tolist()[:2] == [980, 1135]


def test_fashion() -> None:
    data = load("fashion", directory=held("fashion"))
    assert np.bincount(data.train["y"]).tolist() == [6000] * 10


def test_adult() -> None:
    data = load("adult", directory=held("adult"), keep=["age"])
    assert data.train["x"].shape == (32561, 108)
    assert len(data.test["y"]) == 16281
    assert data.train["y"].sum() == 7841
    assert data.test["y"].sum() == 3846
    assert data.train["sex"].sum() == 21790  # men
    assert set(data.train["race"]) == set(range(5))
    assert data.train["age"][0] == 39
    assert data.features[1] == "workclass missing"  # "?" in the file


HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def test_heart() -> None:
    data = load("heart", directory=held("heart"))
    assert data.owners is not None
    assert data.test_owners is not None
    rows = np.bincount(data.owners) + np.bincount(data.test_owners)
    assert (data.clients, rows.tolist()) == (HOSPITALS, [303, 294, 123, 200])
    assert data.train["y"].sum() + data.test["y"].sum() == 139 + 106 + 115 + 149
    assert data.labels[data.positive or 0] == "num > 0"
    assert {"cp=4", "chol missing", "sex"} <= set(data.features)


def test_heart_of_flamby() -> None:
    """Rows, columns, division and scaling as FLamby's own code gives them."""
    data = load("heart-flamby", directory=held("heart"), keep=["age"])
    assert data.owners is not None
    assert data.test_owners is not None
    assert np.bincount(data.owners).tolist() == [199, 172, 30, 85]
    assert np.bincount(data.test_owners).tolist() == [104, 89, 16, 45]
    assert data.features == (
        *("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak"),
        *("cp=2", "cp=3", "cp=4", "restecg=1", "restecg=2"),
    )
    assert np.bincount(data.test_owners, data.test["y"]).tolist() == [48, 33, 15, 35]
    assert np.bincount(data.test_owners, data.test["age"]).tolist() == [5714, 4298, 895, 2650]
    for hospital in range(4):
        x = data.train["x"][data.owners == hospital]
        varies = x.std(axis=0) > 0
        assert np.allclose(x.mean(axis=0), 0, atol=1e-5)
        assert np.allclose(x[:, varies].std(axis=0, ddof=1), 1, atol=1e-4)
    assert data.train["x"].dtype == np.float32


def test_heart_layout(tmp_path: Path) -> None:
    for number, hospital in enumerate(HOSPITALS):
        rows = [
            f"{40 + i},{i % 2},{1 + i % 4},12{i},{i},0,1,150,0,1.{i % 9},{i % 2},{i % 4},3,{i % 3}"
            for i in range(10 + number)
        ]
        write(tmp_path, "\n".join(rows) + "\n", f"processed.{hospital}.data")
    data = load("heart", directory=tmp_path, test_fraction=0.5)
    assert data.owners is not None
    assert np.bincount(data.owners).tolist() == [5, 5, 6, 7]
    refused("heart has classes", "heart", directory=tmp_path, kind="number")
    refused("heart-flamby has its own label", "heart-flamby", directory=tmp_path, label="num")


def test_heart_that_is_not_here(tmp_path: Path) -> None:
    refused("fedssca data get heart", "heart-flamby", directory=tmp_path)


ROW = "39, State-gov, 7, HS, 13, Never, Clerk, Not, White, {}, 2174, 0, 40, X, {}\n"


def test_adult_layout(tmp_path: Path) -> None:
    train = (ROW.format("Male", ">50K") + ROW.format("Female", "<=50K")) * 2 + "\n"
    write(tmp_path, train, "adult.data")
    write(tmp_path, "|1x3 Cross validator\n" + ROW.format("Male", ">50K.") + "\n", "adult.test")
    data = load("adult", directory=tmp_path)
    assert data.train["y"].tolist() == [1, 0, 1, 0]
    assert data.test["y"].tolist() == [1]
    assert data.test["sex"].tolist() == [1]


def test_adult_as_downloaded_is_the_ready_made_one() -> None:
    """Without a header, with " ?" cells, and with labels that end in a full stop."""
    folder, ready = fetch.locate("adult", held("adult")), load("adult", directory=held("adult"))
    assert folder is not None
    assert ready.encoder is not None
    columns = ready.encoder.reading.columns
    train, test = str(folder / "adult.data"), str(folder / "adult.test")
    own = load(None, train, test_path=test, columns=columns, label="income", keep=["sex", "race"])
    for part in ("train", "test"):
        for name, values in getattr(ready, part).items():
            assert np.array_equal(getattr(own, part)[name], values), (part, name)
    assert own.encoder == ready.encoder


def test_credit_as_downloaded_leaves_out_its_id() -> None:
    folder = fetch.locate("credit", held("credit"))
    assert folder is not None
    path = str(folder / "UCI_Credit_Card.csv")
    data = load(None, path, label="default.payment.next.month", categories=["EDUCATION"])
    assert len(data.features) == 22 + 7
    assert data.notes == (
        "column 'ID' is left out: it looks like an id, all its values are different; list it in "
        "keep to use it",
    )


def test_credit() -> None:
    data = load("credit", directory=held("credit"))
    assert data.train["x"].shape == (24000, 23)
    assert len(data.test["y"]) == 6000
    both = np.concatenate([data.train["sex"], data.test["sex"]])
    assert both.sum() == 11888  # men
    assert "ID" not in data.features


def test_credit_of_another_layout(tmp_path: Path) -> None:
    write(tmp_path, "a,b\n1,2\n", "UCI_Credit_Card.csv")
    refused("no column 'ID'", "credit", directory=tmp_path)


def test_names(tmp_path: Path) -> None:
    refused("did you mean 'mnist'", "mnits")
    refused("give either data.name or data.path", None)
    refused("give either", "digits", path="a.csv")
    refused("between 0 and 1", "digits", test_fraction=1.0)
    refused("no column 'sex' to keep or to make groups of; columns: none", "digits", keep=["sex"])
    refused("label 'z' goes with data.path", "digits", label="z")
    refused("data.drop is about the columns of a table, and adult is", "adult", drop=["age"])
    (tmp_path / "a.npz").write_bytes(b"")
    refused("data.id is about the columns .* holds arrays", None, str(tmp_path / "a.npz"), id="a")
    refused(
        r"mnist is not on this machine; fetch it with: fedssca data get mnist \(or point --dir / "
        r"data.dir at the folder that holds train-images-idx3-ubyte.gz\)",
        "mnist",
        directory=tmp_path,
    )
    refused("credit is not on this machine; put UCI_Credit_Card.csv in", "credit", None, tmp_path)


def test_csv(tmp_path: Path) -> None:
    rows = "".join(f"{i},{'mf'[i % 2]},7,{['no', 'yes'][i % 3 == 0]}\n" for i in range(30))
    path = write(tmp_path, "\ufeffage, sex ,same,label\n\n" + rows)
    data = load(None, path, keep=["sex", "age"])
    assert data.name == "t"
    assert data.features == ("age", "sex=f", "sex=m", "same")
    assert (len(data.train["y"]), len(data.test["y"])) == (24, 6)
    assert (data.train["x"][:, 3] == 0).all()
    age = data.train["age"].astype(int)
    assert np.array_equal(data.train["y"], age % 3 == 0)  # no = 0, yes = 1
    assert np.array_equal(data.train["sex"], age % 2 == 0)  # f = 0, m = 1
    assert np.array_equal(data.train["x"][:, 2], age % 2 == 0)
    assert np.allclose(data.train["x"][:, 0], (age - age.mean()) / age.std(), atol=1e-5)


def test_csv_of_numbers(tmp_path: Path) -> None:
    rows = "".join(f'{i},"{i % 2 + 5}"\n' for i in range(10))
    data = load(None, write(tmp_path, "a,y\n" + rows, "N.CSV"))
    assert np.bincount(data.train["y"]).tolist() == [4, 4]  # labels 5, 6
    assert data.classes == 2


def test_unseen_category_is_all_zero(tmp_path: Path) -> None:
    path = write(tmp_path, "k,y\n" + "a,0\nb,1\n" * 10 + "c,1\n")
    for seed in range(40):
        data = load(None, path, seed=seed)
        if len(data.features) == 2:
            assert (data.test["x"].sum(1) == 0).sum() == 1
            return
    pytest.fail("the rare row was never set aside")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a,y\n", "is empty"),
        ("a,y\n1,0\n,1\n", r"too few rows to set aside .* \(rows: 2, classes: 2\)"),
        ("a,y\n1,0\n2,\n", "the label is missing in row 2"),
        ("a,y\n" + ",0\nnan,1\n" * 9, "'a' is empty in all 14 rows; leave it out"),
        ("a,y\n1,0\n2,inf\n", "'y' holds inf in row 2"),
        ("a,y\n1,0\n2\n", "row 2: 1 cells for 2 columns"),
        ("a,a,y\n1,0,1\n", "names a column twice"),
        ("a,b\n1,0\n", "no label column is given; set label to one of a, b"),
        ("a,y,label\n1,0,1\n", "no label column is given"),
        ("a,y\n1,0.5\n2,1\n", "labels out of range: row 1 has label 0.5"),
        ("y\n1\n0\n", "too few|no column is left"),
        ("y\n" + "0\n1\n" * 9, "no column is left"),
        ("a,y\n" + "1,0\n" * 9, "one label 0; at least two"),
        ("a,y\n1,0\n2,1\n", r"too few rows to set aside .* \(rows: 2, classes: 2\)"),
        (
            "a,y\n" + "".join(f"{i},{i}\n" for i in range(30)),
            r'classes: 30\); .* is it a number\? then set problem.task = "regression"',
        ),
        ("a,y\n" + "".join(f"{i},{i}\n" for i in range(1001)), "1001 different labels"),
        (
            "a,y\n" + "".join(f"t{i},{i % 2}\n" for i in range(99)),
            "no column is left .* a is left out: it looks like an id",
        ),
        ("a,y\n" + "1e308,0\n-1e308,1\n" * 9, "'a' is too large"),
        ("a,y\n" + '"' + "z" * 140000, "cannot be read as CSV"),
    ],
)
def test_bad_csv(tmp_path: Path, text: str, words: str) -> None:
    refused(words, None, write(tmp_path, text))


def test_bad_files(tmp_path: Path) -> None:
    refused("is not there", None, str(tmp_path / "none.csv"))
    refused("should be .csv, .npz or .parquet", None, write(tmp_path, "a", "t.xls"))
    path = write(tmp_path, "a,y\n" + "1,0\n2,1\n" * 9)
    refused("no column 'z'; set label to one of a, y", None, path, label="z")
    refused("no column 'z' to keep .*; columns: a", None, path, keep=["z"])
    (tmp_path / "latin.csv").write_bytes("a,y\nö,0\n".encode("latin-1"))
    refused("is no UTF-8 text, perhaps Latin-1", None, str(tmp_path / "latin.csv"))
    (tmp_path / "wide.csv").write_bytes("a,y\nö,0\n".encode("utf-16"))
    refused("is no UTF-8 text, perhaps UTF-16; save", None, str(tmp_path / "wide.csv"))
    (tmp_path / "zipped.csv.gz").write_bytes(b"none")
    refused("cannot be read as CSV text", None, str(tmp_path / "zipped.csv.gz"))
    refused("data.drop leaves out 'y', which is the label", None, path, label="y", drop=["y"])
    refused("data.id leaves out 'y', which is the label", None, path, label="y", id="y")
    refused(
        "data.id = 'a' names the rows, so it cannot make groups", None, path, id="a", keep=["a"]
    )
    bare = write(tmp_path, "1,x\n" * 9)
    refused("does its first line hold data and no names?", None, bare, label="y")


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "a.parquet")
    columns = {"a": [1.5, 2, 3, 4] * 5, "b": ["u", "v"] * 10, "c": [True, False] * 10}
    pq.write_table(pa.table(columns | {"y": ["n", "p"] * 10}), path)
    data = load(None, path)
    assert data.features == ("a", "b=u", "b=v", "c")
    assert data.train["y"].sum() == 8
    pq.write_table(pa.table(columns | {"y": [0, None] * 10}), path)
    refused("the label is missing in row 2", None, path)
    pq.write_table(pa.table({"a": [[1], [2]], "y": [0, 1]}), path)
    refused("no number, text or date", None, path)
    refused("cannot be read as Parquet", None, write(tmp_path, "no", "b.parquet"))


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def none(name: str, *args: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", none)
    refused(re.escape(pip_install("parquet")), None, write(tmp_path, "x", "a.parquet"))
