"""What `fedssca data describe` says about columns, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedssca.data.describe import ColumnDescription, describe
from fedssca.data.encode import EncodingRules
from fedssca.data.encode.cells import Array
from fedssca.data.raw import from_table

N = 100
Y = np.arange(N) % 2 * 1.0
AGE = np.arange(N) % 37 + 20.0


def about(name: str, cells: Array) -> ColumnDescription:
    """The description of a column beside an ordinary one."""
    raw = from_table("t", {"age": AGE, name: cells, "y": Y}, "y", 0.2, 0)
    (found,) = [c for c in describe(raw, EncodingRules()).columns if c.name == name]
    return found


def test_ordinary_columns() -> None:
    age = about("other", AGE + 1)
    assert (age.kind, age.missing, age.values) == ("number", 0, "21 to 57, 37 different")
    assert age.becomes.startswith("standardised: mean 3")
    assert age.warnings == ()
    town = about("town", np.array(["n", "n", "s", "", "n"] * 20))
    assert (town.kind, town.missing) == ("category", 20)
    assert town.values == "n 75%, s 25%"
    assert town.becomes == "2 categories, missing"
    seen = about("seen", np.array([f"2020-01-{1 + i % 28:02d}" for i in range(N)]))
    assert seen.becomes == "days since 1970, standardised (written as year-month-day)"
    assert about("ok", np.array(["yes", "no", "no", "yes"] * 25)).becomes == "0 no, 1 yes"


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (Y * 3, "leak: every class has one value of its own"),
        (np.array(["a", "b", "c", "b"] * 25), "leak: it tells the label without an error"),
        (Y * 100 + np.arange(N) % 50, "leak: a threshold tells the label"),
        (np.full(N, 3.0), "constant"),
        (np.where(np.arange(N) % 5, np.nan, AGE), "mostly missing: 80% of the cells"),
        (np.where(Y, np.nan, AGE), "leak: whether it is missing tells the label"),
        (np.arange(N) % 5 * 1.0, "few whole numbers: if they are codes"),
    ],
)
def test_warnings(cells: Array, words: str) -> None:
    assert any(words in line for line in about("v", cells).warnings)


def test_an_empty_column_is_described_and_said_to_be_refused() -> None:
    found = about("v", np.full(N, np.nan))
    assert (found.kind, found.missing, found.values) == ("left out", N, "none")
    assert "a run would refuse it: set data.drop" in found.warnings[0]


def test_ids_are_said_to_be_left_out() -> None:
    found = about("id", np.arange(N) * 3.0)
    assert found.kind == "left out"
    assert "looks like an id" in found.becomes


def test_columns_that_stand_for_a_group_are_named() -> None:
    """One value per group, or groups that a column tells, also where every file is a group."""
    sex = np.where(np.arange(N) % 3, "f", "m")
    table = {
        "age": AGE,
        "sex": sex,
        "title": np.where(sex == "f", "Ms", "Mr"),
        "ward": np.where(sex == "f", np.where(Y == 1, "w1", "w2"), "w3"),
        "y": Y,
    }
    raw = from_table("t", table, "y", 0.2, 0, ["sex"], owners=(sex == "m") * 1)
    found = {c.name: c.warnings for c in describe(raw, EncodingRules()).columns}
    assert found["age"] == ()
    group, file = "one value per group of 'sex': it stands for the group", "one value per file: "
    assert found["title"][0] == group
    assert found["title"][1].startswith(file)
    assert found["ward"][-2] == "it tells the group of 'sex' without an error"
    assert found["sex"] == ("one value per file: it stands for the file",)
