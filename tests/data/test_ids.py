"""Ids: one spelling for all parties, and every way to miss each other named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedssca.data.ids import IdForm, canonical, form_of, id_cells, misfit, open_with_ids
from fedssca.errors import UserError


def test_one_spelling() -> None:
    assert canonical(["7", " p1\t", "007", "Zoe\u0308", "1e5", "1.10"], "f") == [
        "7",
        "p1",
        "007",
        "Zoë",
        "1e5",
        "1.10",
    ]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["a", "b", "a"], "f: the id 'a' of row 1 occurs again in row 3"),
        (["a", " a"], "f: the id 'a' of row 1 occurs again in row 2"),
        (["Zoe\u0308", "Zoë"], "f: the id 'Zoë' of row 1 occurs again in row 2"),
        (["7", "7.0"], "f, row 2: the id '7.0' is a decimal number"),
        (["1.23457E+12"], "f, row 1: the id '1.23457E+12' is a decimal number"),
        (["7", "nan"], "f, row 2: the id 'nan' is a decimal number"),
        (["7", "  "], "f, row 2: the id is blank"),
        (["a\ud800"], "f, row 1: .* is no valid Unicode text"),
    ],
)
def test_what_is_no_id_is_named_with_its_row(cells: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said.replace("+", r"\+")):
        canonical(cells, "f")
    with pytest.raises(UserError) as told:
        canonical(cells, "f", tell=False)
    assert "'" not in str(told.value)


@pytest.mark.parametrize(
    ("ids", "form"),
    [
        (["7", "12"], IdForm("whole", 0)),
        (["10", "12", "0"], IdForm("whole", 0)),
        (["007", "012"], IdForm("padded", 3)),
        (["p7", "q"], IdForm("text", 0)),
        (["p7", "12"], IdForm("mixed", 2)),
    ],
)
def test_forms(ids: list[str], form: IdForm) -> None:
    assert form_of(ids) == form


def test_misfits() -> None:
    whole, padded, text = IdForm("whole", 0), IdForm("padded", 3), IdForm("text", 0)
    said = "the ids of a are whole numbers such as 7, those of b "
    assert str(misfit({"a": whole, "b": padded})).startswith(said + "digits with zeros")
    assert str(misfit({"a": whole, "b": text})).startswith(said + "text such as p7")
    assert misfit({"a": whole, "b": IdForm("mixed", 0), "c": whole}) is None
    assert misfit({"a": IdForm("whole", 3), "b": padded}) is None  # 100 beside 007


def table(path: Path, ids: Sequence[object], kind: str = "") -> Path:
    values = [f"v{i}" for i in range(len(ids))]
    if path.suffix == ".csv":
        path.write_text(
            "id,v\n" + "".join(f'"{i}",{v}\n' for i, v in zip(ids, values, strict=True))
        )
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({"id": ids, "v": values}), path)
    else:
        np.savez(path, id=np.array(ids, kind or None), v=np.array(values), features=np.array(["q"]))
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_whole_numbers_keep_all_digits(kind: str, tmp_path: Path) -> None:
    ids = [2**53 + 1, 2**53, 7]
    named = open_with_ids(table(tmp_path / f"a.{kind}", ids), "id")
    assert named.parts == {"rows": [str(name) for name in ids]}
    named.write(tmp_path / f"b.{kind}", {"rows": np.array([2, 0])})
    again = open_with_ids(tmp_path / f"b.{kind}", "id")
    assert again.parts == {"rows": ["7", str(2**53 + 1)]}
    if kind == "npz":
        with np.load(tmp_path / "b.npz") as held:
            assert held["v"].tolist() == ["v2", "v0"]
            assert held["features"].tolist() == ["q"]
    else:
        assert id_cells(tmp_path / f"b.{kind}", "v") == ["v2", "v0"]


def test_test_rows_of_an_npz_are_a_part(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, ids=["a", "b"], x=[[1], [2]], ids_test=["c"], x_test=[[3]], scale=2.0)
    named = open_with_ids(file, "ids")
    assert named.parts == {"rows": ["a", "b"], "test": ["c"]}
    named.write(tmp_path / "b.npz", {"rows": np.array([1]), "test": np.array([0])})
    with np.load(tmp_path / "b.npz") as held:
        assert (held["x"].tolist(), held["x_test"].tolist(), held["scale"]) == ([[2]], [[3]], 2.0)


def test_files_that_will_not_do(tmp_path: Path) -> None:
    for name, ids, said in (
        ("a.parquet", [7.0, 8.0], "row 1: the id '7.0' is a decimal number"),
        ("b.parquet", ["a", None], "row 2: the id is blank"),
        ("c.parquet", [True, False], "row 1: the id is True"),
        ("d.npz", [7.0, 8.5], "id, row 1: the id '7.0' is a decimal number"),
        ("e.npz", [[1], [2]], r"ids are int64 of shape \(2, 1\)"),
        ("f.npz", [True, False], "ids are bool"),
        ("g.csv", [7, 7], "the id '7' of row 1 occurs again in row 2"),
    ):
        with pytest.raises(UserError, match=said):
            open_with_ids(table(tmp_path / name, ids), "id")
    np.savez(tmp_path / "h.npz", ids=np.array([b"\xff"]))
    with pytest.raises(UserError, match="row 1: the id is bytes that are no UTF-8"):
        open_with_ids(tmp_path / "h.npz", "ids")
    np.savez(tmp_path / "i.npz", ids=["a"], x=[[1], [2]])
    with pytest.raises(UserError, match="the array 'x' has not one row for each id"):
        open_with_ids(tmp_path / "i.npz", "ids")
    (tmp_path / "j.csv").write_text("id,v\n1,2,3\n")
    with pytest.raises(UserError, match="row 1: 3 cells for 2 columns"):
        open_with_ids(tmp_path / "j.csv", "id")
    (tmp_path / "k.csv").write_text("id,v\n")
    with pytest.raises(UserError, match="is empty"):
        open_with_ids(tmp_path / "k.csv", "id")
    with pytest.raises(UserError, match=r"g.csv has no column 'patient' for the ids; it has id, v"):
        open_with_ids(tmp_path / "g.csv", "patient")
    for name in ("a.parquet", "b.npz", "c.csv"):
        (tmp_path / name).write_bytes(b"\xff\xfe\xfd")
        with pytest.raises(UserError, match=r"cannot be read|is not there|is no UTF-8 text"):
            open_with_ids(tmp_path / name, "id")
    (tmp_path / "a.xls").touch()
    with pytest.raises(UserError, match=r"ends in '.xls'"):
        open_with_ids(tmp_path / "a.xls", "id")
