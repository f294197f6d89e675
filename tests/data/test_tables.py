"""Ordinary files as tables: separators, missing cells, headers, zipped files, databases."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from fedssca.data.lines import Reading
from fedssca.data.sql import read_query
from fedssca.data.tables import is_table, read_table, table_name, write_csv
from fedssca.errors import UserError


def read(
    folder: Path, text: str, name: str = "t.csv", **reading: tuple[str, ...]
) -> dict[str, list[object]]:
    (folder / name).write_text(text)
    return {n: v.tolist() for n, v in read_table(folder / name, Reading(**reading)).items()}  # type: ignore[arg-type]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " , ", "; "])
def test_the_separator_is_found_out(tmp_path: Path, separator: str) -> None:
    lines = [("age", "town"), ("1.5", "Bonn; old, and new|far"), ("2", "Ulm")]
    text = "\n".join(f'{a}{separator}"{b}"' for a, b in lines)
    found = read(tmp_path, text)
    assert found == {"age": [1.5, 2.0], "town": ["Bonn; old, and new|far", "Ulm"]}


def test_a_decimal_comma_where_it_does_not_separate(tmp_path: Path) -> None:
    assert read(tmp_path, "a;b\n1,5;x\n-2,25;y\n")["a"] == [1.5, -2.25]
    assert read(tmp_path, "a;b\n1,5;2\n-2,25;3\n") == {"a": [1.5, -2.25], "b": [2, 3]}


def test_missing_cells(tmp_path: Path) -> None:
    text = "a,b,c\n1, ?,x\nNA,2,NULL\n,nan,\n4,-9,none\n"
    found = read_table(_written(tmp_path, text), Reading(("-9",)))
    assert found["a"] == pytest.approx([1, np.nan, np.nan, 4], nan_ok=True)
    assert found["b"] == pytest.approx([np.nan, 2, np.nan, np.nan], nan_ok=True)
    assert found["c"].tolist() == ["x", "", "", "none"]
    numbers = read_table(_written(tmp_path, "a,b\n1,-9\n-9.0,2\n"), Reading(("-9",)))
    assert numbers["a"] == pytest.approx([1, np.nan], nan_ok=True)
    assert numbers["b"] == pytest.approx([np.nan, 2], nan_ok=True)


def _written(folder: Path, text: str) -> Path:
    (folder / "m.csv").write_text(text)
    return folder / "m.csv"


def test_a_file_without_a_header(tmp_path: Path) -> None:
    text = "|1x3 a comment\n# another\n\n28, 1, ?\n29, 1, x\n"
    found = read(tmp_path, text, "t.data", columns=("age", "sex", "town"))
    assert found == {"age": [28, 29], "sex": [1, 1], "town": ["", "x"]}
    with_names = "age, sex, town\n28, 1, ?\n29, 1, x\n"
    assert read(tmp_path, with_names, columns=("age", "sex", "town")) == found
    other = "town, age, sex\n?, 28, 1\nx, 29, 1\n"
    assert read(tmp_path, other, columns=("age", "sex", "town")) == found
    no_label = Reading(columns=("age", "out", "sex", "town"), optional="out")
    assert list(read_table(tmp_path / "t.data", no_label)) == ["age", "sex", "town"]
    with pytest.raises(UserError, match="has 3 columns, and 2 names are given"):
        read(tmp_path, text, columns=("age", "sex"))
    with pytest.raises(UserError, match="its first line holds numbers, no names; name the columns"):
        read(tmp_path, "28,1,1\n29,1,2\n")


def test_blank_lines_comments_and_separators_at_the_end(tmp_path: Path) -> None:
    found = read(tmp_path, "a,b\n1,x,\n\n# a comment, with commas, inside\n2,y,\n   \n")
    assert found == {"a": [1, 2], "b": ["x", "y"]}
    with pytest.raises(UserError, match="row 2: 3 cells for 2 columns; mend that row"):
        read(tmp_path, "a,b\n1,x\n2,y,z\n3,w\n")


def test_zipped_text(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "rows.csv.gz", "wt") as file:
        file.write("a,b\n1,x\n2,\n")
    path = tmp_path / "rows.csv.gz"
    assert is_table(path)
    assert table_name(path) == "rows"
    assert {n: v.tolist() for n, v in read_table(path).items()} == {"a": [1, 2], "b": ["x", ""]}
    with gzip.open(path, "wt") as file:
        file.write("a,b\n1,2\n3,4\n")
    assert read_table(path)["b"].tolist() == [2, 4]
    path.write_bytes(b"no gzip")
    with pytest.raises(UserError, match="cannot be read as CSV text"):
        read_table(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    table = {"a": np.array([0.1, np.nan, 1 / 3]), "b": np.array(["x, y", "", 'q"'])}
    write_csv(tmp_path / "t.csv", table)
    found = read_table(tmp_path / "t.csv")
    assert found["a"].tobytes() == table["a"].tobytes()
    assert found["b"].tolist() == table["b"].tolist()


def test_parquet_has_dates_booleans_and_missing_cells(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    from datetime import date

    columns = {
        "a": [1, None, 3],
        "b": [True, None, False],
        "c": [date(2020, 1, 2), None, date(2020, 1, 3)],
        "d": ["x", " ? ", None],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet")
    assert found["a"] == pytest.approx([1, np.nan, 3], nan_ok=True)
    assert found["b"].tolist() == ["true", "", "false"]
    assert found["c"].tolist() == ["2020-01-02", "", "2020-01-03"]
    assert found["d"].tolist() == ["x", "", ""]


def test_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy")
    base = sqlite3.connect(tmp_path / "b.sqlite")
    base.execute("create table t (id integer, a real, b text)")
    base.executemany("insert into t values (?, ?, ?)", [(2**60 + 1, 1.5, "x"), (7, None, None)])
    base.commit()
    base.close()
    url = f"sqlite:///{tmp_path}/b.sqlite"
    found = read_query(url, "select * from t", ids="id")
    assert found["id"].tolist() == [str(2**60 + 1), "7"]
    assert found["a"] == pytest.approx([1.5, np.nan], nan_ok=True)
    assert found["b"].tolist() == ["x", ""]
    monkeypatch.setenv("BASE", url)
    assert read_query("env:BASE", "select a from t")["a"][0] == 1.5
    with pytest.raises(UserError, match="that variable is not set"):
        read_query("env:NONE", "select a from t")
    with pytest.raises(UserError, match="did not answer the query"):
        read_query(url, "select nothing from nowhere")
    with pytest.raises(UserError, match="the query gave no rows"):
        read_query(url, "select a from t where a > 9")
