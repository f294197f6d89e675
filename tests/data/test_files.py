"""Data of a user from files: several of them, test files, ids, labels that are comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca.data import Columns, Rows, load
from fedssca.data.encode.labels import class_places, label_cells
from fedssca.data.held_out import held_out_rows
from fedssca.data.load import DataSource
from fedssca.errors import UserError
from fedssca.run.build import load_dataset, share_out
from fedssca.run.config import parse
from fedssca.run.execute import execute


def write(folder: Path, name: str, header: str, rows: list[str]) -> str:
    (folder / name).write_text("\n".join([header, *rows]) + "\n")
    return str(folder / name)


def hospital(number: int, rows: int) -> list[str]:
    return [f"{20 + i + number},{'ns'[i % 2]},{i % 2}" for i in range(rows)]


def test_one_client_per_file(tmp_path: Path) -> None:
    write(tmp_path, "b.csv", "age,town,y", hospital(1, 20))
    write(
        tmp_path,
        "a.csv",
        "y,age,town",
        [",".join(r.split(",")[i] for i in (2, 0, 1)) for r in hospital(0, 10)],
    )
    config = parse("", [f"data.path={tmp_path}/*.csv", "data.test_fraction=0.2"])
    dataset = load_dataset(config)
    clients = share_out(config.data, dataset, 0)
    assert isinstance(clients, Rows)
    assert clients.sizes == (8, 16)  # each file sets aside a share of each class
    assert dataset.features == ("age", "town=n", "town=s")
    assert dataset.encoder is not None
    age = dataset.encoder.columns[0]
    raw = clients.client(0)["x"][:, 0] * age.deviation + age.mean  # type: ignore[attr-defined]
    assert set(np.rint(raw)) <= set(range(20, 30))


def test_one_client_for_each_value_of_a_column(tmp_path: Path) -> None:
    """One table divided by a column is the same data as one file for each of its values."""
    rows = {name: hospital(n, 10 * (n + 1)) for n, name in enumerate(("aix", "bonn"))}
    for name, own in rows.items():
        write(tmp_path, f"{name}.csv", "age,town,y", own)
    whole = [f"{name},{row}" for name in ("bonn", "aix") for row in rows[name]]
    table = write(tmp_path, "all.txt", "clinic,age,town,y", whole)
    divided, apart = (
        parse("", settings)
        for settings in (
            [f"data.path={table}", "data.client=clinic"],
            [f"data.path={tmp_path}/*.csv"],
        )
    )
    data, expected = load_dataset(divided), load_dataset(apart)
    assert data.features == expected.features
    assert data.clients == expected.clients == ("aix", "bonn")
    ours, theirs = (share_out(c.data, d, 0) for c, d in ((divided, data), (apart, expected)))
    assert isinstance(ours, Rows)
    assert isinstance(theirs, Rows)
    for i in range(2):
        for name, column in ours.client(i).items():
            np.testing.assert_allclose(column, theirs.client(i)[name], rtol=1e-6)
    numbers = load(
        path=write(tmp_path, "n.txt", "k,age,y", [f"{i % 2},{i},{i % 3 > 0}" for i in range(40)]),
        client="k",
    )
    assert numbers.clients == ("0", "1")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.client=clinik"], "has no column 'clinik'; did you mean 'clinic'"),
        (["data.client=clinic"], "1 rows have no 'clinic'"),
        (["data.client=y", "data.label=y"], "data.client leaves out 'y', which is the label"),
        (
            ["data.client=clinic", "data.path=DIR/*.txt"],
            "several files in data.path are one client",
        ),
        (["data.client=clinic", "data.split=feature"], "data.client = .clinic.: it divides rows"),
        (["data.client=clinic", "data.path="], "ready-made data have none"),
        (["data.partition=NaturalIdPartitioner"], "name it: data.client = COLUMN"),
    ],
)
def test_columns_that_do_not_divide_rows(tmp_path: Path, settings: list[str], said: str) -> None:
    rows = [f"{'a' if i else ''},{i},{i % 2}" for i in range(20)]
    path = write(tmp_path, "a.txt", "clinic,age,y", rows)
    own = [f"data.path={path}", *(s.replace("DIR", str(tmp_path)) for s in settings)]
    with pytest.raises(UserError, match=said):
        load_dataset(parse("", own))


def test_clients_with_one_row_cannot_set_rows_aside(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "clinic,age,y", [f"p{i},{i},{i % 2}" for i in range(20)])
    with pytest.raises(UserError, match=r"no client has enough rows .* \(rows: 20, clients: 20\)"):
        load(path=path, client="clinic")
    data = load(path=path, client="clinic", test_path=path)
    assert len(data.clients) == len(data.train["y"]) == 20


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    a = write(tmp_path, "a.csv", "age,town,y", hospital(0, 10))
    b = write(tmp_path, "b.csv", "age,city,y", hospital(0, 10))
    with pytest.raises(UserError, match=r"b\.csv has the column 'city' and .*a\.csv has not"):
        load(path=[a, b])
    assert load(path=[a, b], drop=["city", "town"]).features == ("age",)
    c = write(
        tmp_path, "c.csv", "age,town,y", [f"old,{r.split(',', 1)[1]}" for r in hospital(0, 10)]
    )
    with pytest.raises(UserError, match=r"'age' is text in .*c\.csv and numbers in .*a\.csv"):
        load(path=[a, c])
    with pytest.raises(UserError, match="no file matches"):
        load(path=f"{tmp_path}/*.tsv")
    with pytest.raises(UserError, match="is named twice"):
        load(path=[a, a])
    d = write(tmp_path, "d.csv", "age,town,y", [f",{r.split(',', 1)[1]}" for r in hospital(0, 10)])
    assert load(path=[a, d]).features == ("age", "age missing", "town=n", "town=s")


def test_a_folder_with_one_file_per_state(tmp_path: Path) -> None:
    """As folktables writes the census: codes and numbers, a comparison as the label."""
    folder = tmp_path / "states"
    folder.mkdir()
    rows = {"AL": 40, "CA": 80, "WY": 20}
    for number, (state, count) in enumerate(rows.items()):
        each = [f"{20 + i % 50},{1 + i % 2},{9000 + 700 * i + number}" for i in range(count)]
        write(folder, f"{state}.csv", "AGEP,SEX,PINCP", each)
    settings = [f"data.path={folder}/*.csv", "data.label=PINCP > 20000", "data.categories=['SEX']"]
    config = parse("", [*settings, "model.name=linear", "algorithm.rounds=4", "algorithm.batch=5"])
    dataset = load_dataset(config)
    clients = share_out(config.data, dataset, 0)
    assert isinstance(clients, Rows)
    assert (clients.names, sum(clients.sizes)) == (("AL", "CA", "WY"), len(dataset.train["y"]))
    assert dataset.features == ("AGEP", "SEX=1", "SEX=2")
    assert np.bincount(dataset.held_out["client"]).tolist() == [8, 16, 4]
    result = execute(config, tmp_path / "run")
    assert [each["name"] for each in result["per_client"]] == ["AL", "CA", "WY"]
    assert all("test" in each for each in result["per_client"])
    one = parse("", [f"data.path={folder}/W*.csv", *settings[1:]])
    assert share_out(one.data, load_dataset(one), 0).count == 1  # not ten parts of one file


def test_a_folder_that_does_not_fit(tmp_path: Path) -> None:
    write(tmp_path, "AL.csv", "age,town,ill", hospital(0, 10))
    with pytest.raises(UserError, match=r"is a folder of tables: data\.path = '.*/\*\.csv' takes"):
        load(path=str(tmp_path))
    write(tmp_path, "CA.csv", "age,city,street,ill", [f"x,{row}" for row in hospital(0, 10)])
    told = (
        r"CA\.csv has the columns 'city', 'street' and .*AL\.csv has not, and it lacks the column"
    )
    with pytest.raises(
        UserError, match=told + r" 'town'.*data\.drop = \['city', 'street', 'town'\]"
    ):
        load(path=f"{tmp_path}/*.csv", label="ill")
    write(tmp_path, "CA.csv", "age,town,sick", hospital(0, 10))
    told = r"CA\.csv has no column 'ill', which is the label; its columns are age, town, sick"
    with pytest.raises(UserError, match=told):
        load(path=f"{tmp_path}/*.csv", label="ill")
    write(tmp_path, "AL.csv", "age,town,y", hospital(0, 10))
    with pytest.raises(UserError, match=r"CA\.csv has no column 'y', which is the label"):
        load(path=f"{tmp_path}/*.csv")


def test_one_party_per_file(tmp_path: Path) -> None:
    """Rows are joined by id, in any order; those that not all parties have are left out."""
    bank = write(tmp_path, "bank.csv", "id,x,y", [f"{i},{i % 7},{i % 2}" for i in range(30)])
    shop = write(
        tmp_path, "shop.csv", "id,x,kind", [f"{i},{10 * i},{'ab'[i % 2]}" for i in range(39, 9, -1)]
    )
    config = parse("", [f'data.path=["{bank}", "{shop}"]', "data.split=feature", "data.id=id"])
    with pytest.warns(
        UserWarning, match=r"20 rows are in all files; bank\.csv leaves out 10, shop"
    ):
        dataset = load_dataset(config)
    assert dataset.features == ("x.1", "x.2", "kind=a", "kind=b")
    clients = share_out(config.data, dataset, 0)
    assert isinstance(clients, Columns)
    assert [block.tolist() for block in clients.blocks] == [[0], [1, 2, 3]]
    x, y = dataset.train["x"], dataset.train["y"]
    assert np.array_equal(x[:, 3] == 1, y == 1)  # odd ids have kind b and label 1
    with pytest.raises(UserError, match=r"set data\.id"):
        load(path=[bank, shop], split="feature")
    with pytest.raises(UserError, match="has no column 'key'"):
        load(path=[bank, shop], split="feature", id="key")
    other = write(tmp_path, "other.csv", "id,z", [f"p{i},1" for i in range(9)])
    with pytest.raises(UserError, match="no id of column 'id' is in all of"):
        load(path=[bank, other], split="feature", id="id")


def test_test_rows_belong_to_the_client_whose_file_they_are_in(tmp_path: Path) -> None:
    for name in "ab":
        rows = [f"{i % 7},{name},{i % 2}" for i in range(40)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,town,y", *rows]))
    data = load(None, str(tmp_path / "*.csv"), keep=["town"])
    assert data.test_owners is not None
    assert data.held_out["client"].tolist() == data.test["town"].tolist()
    assert np.bincount(data.test_owners).tolist() == [8, 8]
    again = load(None, str(tmp_path / "*.csv"), test_path=str(tmp_path / "a.csv"))
    assert again.test_owners is None
    assert "client" not in again.held_out


def test_a_test_file(tmp_path: Path) -> None:
    train = write(
        tmp_path,
        "a.data",
        "age,town,y",
        [f"{i},{'ns'[i % 2]},{['<=50K', '>50K'][i % 2]}" for i in range(40)],
    )
    test = write(tmp_path, "a.test", "town,age,y", ["n,5,>50K.", "w,?,<=50K."])
    data = load(path=train, test_path=test)
    assert data.test["y"].tolist() == [1, 0]
    assert data.test["x"][1].tolist() == [0, 0, 0]  # the mean, and an unseen category
    assert len(data.train["y"]) == 40
    odd = write(tmp_path, "odd.csv", "town,age,y", ["n,5,1", "w,6,0"])
    with pytest.raises(
        UserError, match="test rows: row 1 has the label '1'; the classes are <=50K"
    ):
        load(path=train, test_path=odd)
    lacking = write(tmp_path, "lacking.csv", "city,age,y", ["n,5,>50K"])
    with pytest.raises(UserError, match="test rows: column 'town' is missing"):
        load(path=train, test_path=lacking)
    text = write(tmp_path, "text.csv", "town,age,y", ["n,old,>50K"])
    with pytest.raises(UserError, match="column 'age' is text here and numbers in the training"):
        load(path=train, test_path=text)


def test_ids_and_dropped_columns_are_no_features(tmp_path: Path) -> None:
    rows = [f"{100 - i},{i % 9},u{i},{i % 5},{i % 2}" for i in range(60)]
    path = write(tmp_path, "t.csv", "ID,a,user,b,y", rows)
    data = load(path=path)
    assert data.features == ("a", "b")
    assert data.notes == (
        "column 'ID' is left out: it looks like an id, all its values are different; list it in "
        "keep to use it",
        "column 'user' is left out: it looks like an id, all its values are different; list it in "
        "keep to use it",
    )
    assert load(path=path, id="ID", drop=["user", "b"]).features == ("a",)
    assert load(path=path, id="ID", drop=["user", "b"]).notes == ()
    assert load(path=path, keep=["ID"]).features == ("ID", "a", "b")
    with pytest.raises(UserError, match="no column 'c'; known are ID, a"):
        load(path=path, drop=["c"])


def test_limits_can_use_columns_that_are_dropped(tmp_path: Path) -> None:
    rows = [f"{i % 9},{'fm'[i % 2]},{i % 5},{i % 3 % 2}" for i in range(60)]
    data = load(path=write(tmp_path, "t.csv", "a,sex,b,y", rows), drop=["sex", "b"], keep=["sex"])
    assert data.features == ("a",)
    assert data.kinds == {"sex": ("f", "m")}
    assert data.notes == ("column 'sex' is left out: it is dropped, and only limits use it",)
    assert data.encoder is not None
    assert data.encoder.id == ""


def test_held_out_rows_are_those_of_the_files(tmp_path: Path) -> None:
    """Text files give their own cells; files of parties give the joined columns."""
    rows = [f"{i:03},{i % 9}.50,u{i % 4},{i % 2}" for i in range(40)]
    path = write(tmp_path, "t.csv", "id,a,town,y", rows)
    found = held_out_rows(DataSource(path=path, id="id"))
    chosen = [",".join(cells) for cells in zip(*found.values(), strict=True)]
    assert set(chosen) < set(rows)
    data = load(path=path, id="id")
    assert [int(y) for y in found["y"]] == data.test["y"].tolist()
    other = write(tmp_path, "u.csv", "id,b", [f"{i:03},{i}.5" for i in range(40)])
    parties = DataSource(path=[path, other], id="id", split="feature", label="y")
    assert list(held_out_rows(parties)) == ["a", "town", "b", "y"]
    assert held_out_rows(parties)["b"] == [f"{int(name)}.5" for name in found["id"]]
    turned = [",".join(reversed(row.split(","))) for row in rows]
    more = write(tmp_path, "v.csv", "y,town,a,id", turned)
    several = held_out_rows(DataSource(path=[path, more]))
    assert len(several["id"]) == 16
    assert {",".join(cells) for cells in zip(*several.values(), strict=True)} <= set(rows)
    with pytest.raises(UserError, match=r"the test rows are those of data\.test_path"):
        held_out_rows(DataSource(path=path, test_path=path))
    with pytest.raises(UserError, match="digits holds arrays, no table"):
        held_out_rows(DataSource(name="digits"))


def test_held_out_rows_have_decimal_points(tmp_path: Path) -> None:
    """They are written with commas between cells, where a decimal comma would make text."""
    rows = [f"{i},{i % 9};u,{i % 3};{i % 2}" for i in range(40)]
    found = held_out_rows(DataSource(path=write(tmp_path, "t.csv", "a;town;y", rows)))
    assert set(zip(found["a"], found["town"], strict=True)) < {
        (f"{i}.{i % 9}", f"u,{i % 3}") for i in range(40)
    }


def test_a_label_may_compare_a_column_with_a_number(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "a,num", [f"{i % 9},{i % 5}" for i in range(50)])
    data = load(path=path, label="num > 0")
    assert data.labels == ("num <= 0", "num > 0")
    assert data.features == ("a",)
    assert data.train["y"].mean() == pytest.approx(0.8)
    table = {"num": np.array([0.0, 2.0, np.nan]), "t": np.array(["a", "b", "c"])}
    assert label_cells(table, "num >= 2", "here").tolist() == ["num < 2", "num >= 2", ""]
    with pytest.raises(UserError, match="compares text with a number"):
        label_cells(table, "t > 2", "here")
    with pytest.raises(UserError, match="there is no column 'n > 2'"):
        label_cells(table, "n > 2", "here")
    assert class_places(data.labels, np.array(["num > 0"]), "here").tolist() == [1]


def test_numbers_that_are_codes_are_categories(tmp_path: Path) -> None:
    rows = [f"{i % 3},{i % 9},{i % 2}" for i in range(60)]
    data = load(path=write(tmp_path, "t.csv", "code,a,y", rows), categories=["code"])
    assert data.features == ("code=0", "code=1", "code=2", "a")
    assert data.encoder is not None
    new = {"code": np.array([2.0, 5.0]), "a": np.array([4.0, 4.0])}  # as a new file is read
    assert data.encoder.encode(new)[:, :3].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert data.encoder.unseen(new) == {"code": 1}
    with pytest.raises(UserError, match="no column 'b'"):
        load(path=write(tmp_path, "t.csv", "code,a,y", rows), categories=["b"])


HEART = Path(__file__).parents[2].parent / "shared" / "data" / "heart"


@pytest.mark.skipif(not HEART.is_dir(), reason="the files of heart disease are not here")
def test_heart_disease_of_four_hospitals() -> None:
    """Without headers, with missing cells that differ between the hospitals."""
    columns = "age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num"
    names = [f'"{name}"' for name in columns.split()]
    settings = [f"data.path={HEART}/*.data", f"data.columns=[{', '.join(names)}]"]
    config = parse("", [*settings, 'data.label="num > 0"', "data.impute=median"])
    dataset = load_dataset(config)
    clients = share_out(config.data, dataset, 0)
    assert isinstance(clients, Rows)
    assert clients.count == 4
    assert clients.total + len(dataset.test["y"]) == 303 + 294 + 123 + 200
    assert dataset.labels == ("num <= 0", "num > 0")
    marked = {name for name in dataset.features if name.endswith(" missing")}
    assert {"ca missing", "thal missing", "chol missing"} <= marked
    assert "age missing" not in marked
