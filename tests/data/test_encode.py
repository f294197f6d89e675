"""The encoder of tables, by hand: what simulator, sites and predictions make of columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedssca.data.encode import (
    BooleanEncoding,
    CategoryEncoding,
    ColumnSummary,
    DateEncoding,
    Encoder,
    EncodingRules,
    NumberEncoding,
    codes,
    fit_encoder,
    kinds_of,
    standardise,
    summarise,
)
from fedssca.data.encode.cells import Array
from fedssca.data.raw import from_table
from fedssca.errors import UserError

NAN = float("nan")
AGE = np.array([1.0, 3.0, 5.0])
TOWN = np.array(["b", "a", "b"])
RULES = EncodingRules()


def fit(
    *parts: dict[str, Array], rules: EncodingRules = RULES, train: Array | None = None
) -> Encoder:
    """The encoder of sites that hold these tables; their summaries travel as plain values."""
    summaries = {
        name: [
            ColumnSummary.from_state(summarise(name, part[name], train, rules).state())
            for part in parts
        ]
        for name in parts[0]
    }
    return fit_encoder(summaries, rules, "y", [0.0, 1.0])


def test_numbers_are_standardised_and_text_is_one_hot() -> None:
    columns = (
        NumberEncoding("age", 3.0, False, 3.0, 2.0),
        CategoryEncoding("town", ("a", "b"), False, False),
    )
    encoder = Encoder(columns)
    x = encoder.encode({"town": TOWN, "age": AGE, "more": AGE})
    assert x.dtype == np.float32
    assert x.tolist() == [[-1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert encoder.features == ("age", "town=a", "town=b")


def test_an_unseen_kind_is_all_zeros_and_a_constant_column_is_zero() -> None:
    encoder = fit({"town": TOWN, "age": np.full(3, 7.0)})
    new = {"town": np.array(["c", "a"]), "age": np.array([9.0, 7.0])}
    assert encoder.encode(new).tolist() == [[0, 0, 0], [1, 0, 0]]
    assert encoder.unseen(new) == {"town": 1}
    both = np.array([[1.0, 7.0], [3.0, 7.0]])
    assert standardise(both, np.array([2.0, 7.0]), np.array([1.0, 0.0])).tolist() == [
        [-1, 0],
        [1, 0],
    ]


def test_missing_cells_are_filled_and_marked() -> None:
    table = {"age": np.array([1.0, NAN, 5.0, 5.0, 9.0]), "town": np.array(["b", "", "b", "a", "a"])}
    encoder = fit(table)
    assert encoder.features == ("age", "age missing", "town missing", "town=a", "town=b")
    x = encoder.encode(table)
    assert x[1].tolist() == [0, 1, 1, 0, 0]  # the mean of 1, 5, 5, 9 is 5
    assert x[0, 0] == pytest.approx(-4 / np.sqrt(8))
    values = {"age": np.array([1.0, NAN, 2.0, 7.0, 7.0, 9.0, 2.0, 3.0, 2.0])}
    for rule, fill in (("median", 2.5), ("most_frequent", 2.0)):
        assert fit(values, rules=EncodingRules(rule)).columns[0].fill == fill  # type: ignore[attr-defined]
    whole = fit({"age": AGE})
    assert whole.encode({"age": np.array([NAN, 3.0])})[:, 0].tolist() == [0, 0]


def test_the_median_of_sites_is_that_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(100, 30, 101))
    rules = EncodingRules("median")
    parts = ({"v": values[:30]}, {"v": values[30:]}, {"v": np.array([NAN])})
    assert fit(*parts, rules=rules).columns[0].fill == np.median(values)  # type: ignore[attr-defined]
    many = rng.normal(100, 30, 1001)  # more than 200 different values are rounded to three digits
    joint = fit({"v": many[:100]}, {"v": many[100:]}, rules=rules).columns[0]
    alone = fit({"v": many}, rules=rules).columns[0]
    assert joint.fill == alone.fill == pytest.approx(np.median(many), rel=0.005)  # type: ignore[attr-defined]


def test_booleans_and_dates_are_numbers() -> None:
    table = {
        "smoker": np.array(["Yes", "no", "", "yes"]),
        "seen": np.array(["1970-01-02", "", "1970-01-04 12:00", "1970-01-02"]),
        "born": np.array(["31/12/1999", "01/02/1980", "05/06/1970", "01/02/1980"]),
        "either": np.array(["01/02/1999", "03/04/1999", "01/02/1999", "03/04/1999"]),
    }
    encoder = fit(table)
    smoker, seen, born, either = encoder.columns
    assert smoker == BooleanEncoding("smoker", 2 / 3, True, "no", "yes")
    assert isinstance(seen, DateEncoding)
    assert (seen.form, seen.mean) == ("year-month-day", pytest.approx((1 + 3.5 + 1) / 3))
    assert isinstance(born, DateEncoding)
    assert born.form == "day/month/year"
    assert isinstance(either, CategoryEncoding)  # day first or month first: nothing tells
    x = encoder.encode(table)
    assert x[:, 0] == pytest.approx([1, 0, 2 / 3, 1])
    assert x[:, 1].tolist() == [0, 0, 1, 0]
    with pytest.raises(UserError, match="'seen' holds 'soon' in row 1, and dates as year-month"):
        encoder.encode(table | {"seen": np.array(["soon", "", "", ""])})
    with pytest.raises(UserError, match="'smoker' holds 'maybe' in row 2, and no or yes"):
        encoder.encode(table | {"smoker": np.array(["no", "maybe", "", ""])})


def test_many_dates_of_an_unclear_form_are_refused() -> None:
    days = np.array([f"{i % 12 + 1:02}/{i % 11 + 1:02}/2020" for i in range(60)])
    with pytest.raises(UserError, match="can be day/month/year or month/day/year: write them as"):
        fit({"seen": days})
    told = np.append(days, "31/12/2020")
    assert fit({"seen": told}).columns[0].form == "day/month/year"  # type: ignore[attr-defined]


def test_rare_values_are_one_category_together() -> None:
    counts = {"a": 4, "b": 1, "c": 3, "d": 2}
    values = np.repeat(list(counts), list(counts.values()))
    encoder = fit({"town": values}, rules=EncodingRules(most_categories=2))
    assert encoder.features == ("town=a", "town=c", "town other")
    new = np.array(["a", "b", "never", "c"])
    assert encoder.encode({"town": new}).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0]]


def test_a_site_tells_no_text_that_occurs_once_among_many() -> None:
    names = np.array([f"name {i // 2}" for i in range(420)] + ["Ann", "Bob"])
    told = summarise("name", names, None, RULES)
    assert set(told.counts) == set(names[:420])
    assert told.different == 212
    assert summarise("name", np.unique(names), None, RULES).counts == {}


def test_ids_are_left_out() -> None:
    n = 120
    table = {
        "name": np.array([f"p{i}" for i in range(n)]),
        "ID": np.arange(n) * 7.0 + 3,
        "row": np.arange(n) + 1.0,
        "salary": np.arange(n) * 7.0 + 3,
        "seen": np.array([f"{1900 + i}-01-01" for i in range(n)]),
    }
    assert [c.name for c in fit(table).columns] == ["salary", "seen"]
    halves = [
        {name: cells[part] for name, cells in table.items()} for part in (slice(12), slice(12, n))
    ]
    joint = fit(*halves)
    assert joint.left_out.keys() == {"name", "ID", "row"}
    with pytest.raises(UserError, match="no column is left beside the label"):
        fit({"ID": table["ID"]})


def test_a_column_of_another_kind_than_in_training_is_named() -> None:
    encoder = fit({"age": AGE, "town": TOWN})
    with pytest.raises(
        UserError, match=r"new\.csv: column 'age' is text here, such as 'b' in row 1"
    ):
        encoder.encode({"age": TOWN, "town": TOWN}, "new.csv")
    with pytest.raises(UserError, match="column 'town' is numbers here, and text such as 'a' in"):
        encoder.encode({"age": AGE, "town": AGE})
    with pytest.raises(UserError, match=r"column 'town' is missing, .* did you mean 'Town'"):
        encoder.encode({"age": AGE, "Town": TOWN})
    with pytest.raises(UserError, match="column 'age' is empty in all 2 rows, and in no training"):
        encoder.encode({"age": np.array([NAN, NAN]), "town": TOWN[:2]})
    with pytest.raises(UserError, match="column 'age' is empty in all 3 rows; leave it out"):
        fit({"age": np.array([NAN] * 3)})
    with pytest.raises(UserError, match="'age' is text at one site and numbers at another"):
        fit({"age": AGE}, {"age": TOWN})


def test_numbers_stand_for_categories_that_are_numbers() -> None:
    encoder = fit({"code": np.array(["1", "2", "x"])})
    assert encoder.encode({"code": np.array([2.0, 1.0, NAN])}).tolist() == [
        [0, 1, 0],
        [1, 0, 0],
        [0, 0, 0],
    ]


def test_summaries_of_sites_join_to_those_of_all_rows() -> None:
    values = np.random.default_rng(0).normal(100, 7, 50)
    column = fit({"v": values[:11]}, {"v": values[11:12]}, {"v": values[12:]}).columns[0]
    assert isinstance(column, NumberEncoding)
    assert column.mean == pytest.approx(values.mean(), rel=1e-12)
    assert column.deviation == pytest.approx(values.std(), rel=1e-12)
    constant = fit({"v": np.full(4, 0.1)}).columns[0]
    assert constant == NumberEncoding("v", pytest.approx(0.1), False, pytest.approx(0.1), 0.0)  # type: ignore[arg-type]


def test_columns_beside_x_are_places_among_their_kinds() -> None:
    assert kinds_of(TOWN) == ["a", "b"]
    assert codes(TOWN, ["a", "b"]).tolist() == [1, 0, 1]
    assert codes(AGE, None).dtype == np.float32


def test_labels_are_places_among_the_classes() -> None:
    text, numbers = Encoder((), "y", ("<=50K", ">50K")), Encoder((), "y", (0, 2))
    assert text.encode_labels({"y": np.array([">50K.", "<=50K"])}).tolist() == [1, 0]
    assert numbers.encode_labels({"y": np.array([2.0, 0.0])}).tolist() == [1, 0]
    with pytest.raises(UserError, match="row 2 has the label 'sick'; the classes are 0, 2"):
        numbers.encode_labels({"y": np.array(["2", "sick"])})
    with pytest.raises(UserError, match="row 1 has no label"):
        numbers.encode_labels({"y": np.array([NAN])})


def test_the_saved_state_encodes_alike() -> None:
    table = {
        "age": np.array([0.1, NAN, 1 / 3]),
        "town": np.array(["é", "a", ""]),
        "seen": np.array(["2020-02-03", "2020-02-05", "2020-03-05"]),
        "ok": np.array(["true", "false", "true"]),
    }
    encoder = fit(table)
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    assert again.encode(table).tobytes() == encoder.encode(table).tobytes()


def test_sites_encode_as_the_simulator_does() -> None:
    rng = np.random.default_rng(1)
    table = {
        "age": np.where(rng.random(40) < 0.1, NAN, rng.normal(50, 9, 40)),
        "town": rng.choice(["n", "s", ""], 40),
    }
    whole = {**table, "y": np.arange(40) % 2 * 1.0}
    train, test = ({n: v[part] for n, v in whole.items()} for part in (slice(30), slice(30, 40)))
    raw = from_table("t", train, "y", 0.25, 3, test=test)
    data = raw.encoded()
    parts = [{n: v[i:30:2] for n, v in table.items()} for i in range(2)]
    sites = fit(*parts)
    assert data.encoder is not None
    assert data.features == sites.features
    both = np.concatenate([data.train["x"], data.test["x"]])
    np.testing.assert_allclose(sites.encode(table), both, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(
        st.one_of(st.just(NAN), st.floats(-1e6, 1e6, width=32)), min_size=2, max_size=40
    ),
    words=st.lists(
        st.sampled_from(["", "a", "b", "yes", "no", "2020-01-02"]), min_size=40, max_size=40
    ),
    cut=st.integers(1, 39),
    impute=st.sampled_from(["mean", "median", "most_frequent"]),
)
def test_any_division_into_sites_gives_the_same_encoder(
    numbers: list[float], words: list[str], cut: int, impute: str
) -> None:
    rules, n = EncodingRules(impute, most_categories=3), len(numbers)
    table = {"v": np.array([*numbers, 1.0]), "t": np.array([*words[:n], "a"])}
    first = min(cut, n)
    parts = [
        {c: cells[own] for c, cells in table.items()} for own in (slice(first), slice(first, None))
    ]
    whole, joint = fit(table, rules=rules), fit(*parts, rules=rules)
    assert whole.features == joint.features
    x, y = whole.encode(table), joint.encode(table)
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
