"""Rows and columns over clients: nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedssca.data import Columns, Rows, by_feature, by_sample, load
from fedssca.errors import UserError


def data(n: int = 60, p: int = 5, labels: int = 4) -> dict[str, np.ndarray]:
    y = np.random.default_rng(n).integers(0, labels, n).astype(np.int32)
    y[: min(n, labels)] = np.arange(min(n, labels))
    x = np.arange(n * p, dtype=np.float32).reshape(n, p)
    return {"x": x, "y": y, "row": np.arange(n)}


def whole(rows: Rows, n: int) -> bool:
    together = np.concatenate([rows.client(i)["row"] for i in range(rows.count)])
    return bool(np.array_equal(np.sort(together), np.arange(n)))


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 80),
    st.integers(1, 12),
    st.sampled_from(["iid", "contiguous", "dirichlet"]),
    st.integers(0, 5),
    st.sampled_from([1e-6, 0.01, 0.5, 100.0]),
)
def test_every_row_once(n: int, clients: int, partition: str, seed: int, a: float) -> None:
    columns = data(n)
    if clients > n:
        with pytest.raises(UserError, match=f"there are {n} rows"):
            by_sample(columns, clients, partition, seed)
        return
    rows = by_sample(columns, clients, partition, seed, concentration=a)
    assert rows.count == clients
    assert rows.total == n
    assert min(rows.sizes) >= 1
    assert whole(rows, n)
    for i in range(clients):  # rows stay together
        part = rows.client(i)
        assert np.array_equal(part["x"], columns["x"][part["row"]])
        assert np.array_equal(part["y"], columns["y"][part["row"]])
    if partition != "dirichlet":
        assert max(rows.sizes) - min(rows.sizes) <= 1
    again = by_sample(columns, clients, partition, seed, concentration=a)
    assert np.array_equal(rows.columns["row"], again.columns["row"])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 3))
def test_classes(clients: int, k: int, seed: int) -> None:
    columns = data(300)
    if clients * k < 4:
        with pytest.raises(UserError, match="classes_per_client"):
            by_sample(columns, clients, "classes", seed, classes_per_client=k)
        return
    rows = by_sample(columns, clients, "classes", seed, classes_per_client=k)
    assert whole(rows, 300)
    assert all(len(np.unique(rows.client(i)["y"])) == k for i in range(clients))


def test_seeds_differ_and_dirichlet_is_skewed() -> None:
    columns = data(400)
    a, b = (by_sample(columns, 4, "iid", s).client(0)["row"] for s in (0, 1))
    assert not np.array_equal(a, b)
    skewed = by_sample(columns, 4, "dirichlet", concentration=0.05)
    even = by_sample(columns, 4, "dirichlet", concentration=1000.0)
    assert np.ptp(skewed.sizes) > np.ptp(even.sizes)


def test_dirichlet_minimum() -> None:
    rows = by_sample(data(100), 10, "dirichlet", concentration=0.01, minimum=10)
    assert rows.sizes == (10,) * 10
    assert whole(rows, 100)
    with pytest.raises(UserError, match="there are 9 lots of 11 rows"):
        by_sample(data(100), 10, "dirichlet", minimum=11)


def test_sizes() -> None:
    assert by_sample(data(60), 3, sizes=[10, 20, 30]).sizes == (10, 20, 30)
    assert by_sample(data(60), 3, sizes=[0.5, 0.3, 0.2]).sizes == (30, 18, 12)
    few = by_sample(data(60), 2, "contiguous", sizes=[1, 2])
    assert few.columns["row"].tolist() == [0, 1, 2]
    assert by_sample(data(7), 3, sizes=[1 / 3] * 3).total == 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sizes": [10, 20]}, "2 entries for 3 clients"),
        ({"sizes": [10, 20, 0]}, "should be positive"),
        ({"sizes": [10, 20, -1]}, "should be positive"),
        ({"sizes": [10, float("nan"), 1]}, "should be positive"),
        ({"sizes": [30, 30, 1]}, "sum to 61; they should sum to at most 60"),
        ({"sizes": [0.5, 0.5, 0.5]}, "sum to 1.5; fractions should sum to 1"),
        ({"sizes": [0.999, 0.0005, 0.0005]}, "nothing of 60"),
        ({"sizes": [1, 2, 3], "partition": "dirichlet"}, "use iid or contiguous"),
        ({"partition": "dirichlett"}, "did you mean 'dirichlet'"),
        ({"partition": "dirichlet", "concentration": 0.0}, "concentration is 0.0"),
        ({"minimum": 0}, "minimum is 0"),
        ({"clients": 0}, "clients is 0; there are 60 rows: it should be 1 to 60"),
        ({"clients": 61}, "clients is 61"),
        ({"clients": "3"}, "clients is '3'; there are 60 rows"),
        ({"partition": "classes", "classes_per_client": 9}, "it should be 2 to 4"),
        ({"partition": "classes", "classes_per_client": 1, "clients": 59}, "fewer than 1"),
    ],
)
def test_bad_options(options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        by_sample(data(60), **({"clients": 3} | options))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("divide", [by_sample, by_feature])
def test_columns_are_a_mapping_of_arrays(divide: Callable[..., Any]) -> None:
    for wrong in (load("digits"), {"x": [[1.0]], "y": [0]}):
        with pytest.raises(UserError, match=r"a mapping of arrays, such as data\.train"):
            divide(wrong, 2)


def test_labels_needed() -> None:
    with pytest.raises(UserError, match="a column named y"):
        by_sample({"x": np.zeros((9, 2))}, 3, "dirichlet")


def test_rows_views_and_offsets() -> None:
    columns = data(10)
    rows = by_sample(columns, 3, "contiguous")
    assert rows.offsets == (0, 4, 7)
    assert np.shares_memory(rows.columns["x"], columns["x"])
    assert np.shares_memory(rows.client(1)["x"], columns["x"])
    with pytest.raises(UserError, match="client is 3; it should be 0 to 2"):
        rows.client(3)


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "classes"])
def test_sharing_out_copies_nothing_and_knows_the_owners(partition: str) -> None:
    columns = data(40)
    rows = by_sample(columns, 3, partition)
    assert rows.columns["x"] is columns["x"]
    owners = rows.owners()
    for i in range(3):
        assert set(rows.client(i)["row"]) == set(np.flatnonzero(owners == i))
    together = np.concatenate([rows.client(i)["y"] for i in range(3)])
    assert np.array_equal(rows.beside()["y"], together)


def test_rows_of_nobody() -> None:
    rows = by_sample(data(10), 2, sizes=[3, 4])
    assert sorted(rows.owners()) == [-1] * 3 + [0] * 3 + [1] * 4
    assert len(rows.beside()["y"]) == rows.total == 7
    with pytest.raises(UserError, match="sizes sum to 4"):
        Rows({"x": np.zeros((9, 2))}, (2, 2), order=np.arange(3, dtype=np.int32))


def test_rows_of() -> None:
    a, b = data(4), data(6)
    rows = Rows.of([a, b])
    assert rows.sizes == (4, 6)
    assert np.array_equal(rows.client(1)["x"], b["x"])
    for parts, words in (
        ([], "at least one"),
        ([a, {"x": b["x"]}], "client 1 should have"),
        ([a, b | {"y": b["y"][:2]}], "equal in rows"),
        ([a, b | {"x": b["x"][:, :2]}], "shaped as client 0"),
    ):
        with pytest.raises(UserError, match=words):
            Rows.of(parts)
    with pytest.raises(UserError, match="sizes sum to 3"):
        Rows(a, (1, 2))
    with pytest.raises(UserError, match="each client needs a row"):
        Rows(a, (4, 0))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from(["iid", "contiguous"]))
def test_every_feature_once(p: int, clients: int, partition: str) -> None:
    columns = data(6, p)
    if clients > p:
        with pytest.raises(UserError, match=f"there are {p} features"):
            by_feature(columns, clients, partition)
        return
    split = by_feature(columns, clients, partition, seed=1)
    assert split.count == clients
    assert split.total == 6
    assert sorted(np.concatenate(split.blocks).tolist()) == list(range(p))
    assert np.shares_memory(split.columns["x"], columns["x"])
    for i, block in enumerate(split.blocks):
        assert np.array_equal(split.client(i)["x"], columns["x"][:, block])
        assert "y" in split.client(i)


def test_features_uneven_and_label_holder() -> None:
    split = by_feature(data(), 3, sizes=[1, 3, 1], label_holder=1)
    assert [len(b) for b in split.blocks] == [1, 3, 1]
    assert [set(split.client(i)) for i in range(3)] == [{"x"}, {"x", "y", "row"}, {"x"}]
    with pytest.raises(UserError, match="sum to exactly 5"):
        by_feature(data(), 2, sizes=[1, 3])
    with pytest.raises(UserError, match="label_holder is 3"):
        by_feature(data(), 3, label_holder=3)
    with pytest.raises(UserError, match="did you mean 'contiguous'"):
        by_feature(data(), 3, "continuous")
    with pytest.raises(UserError, match="in one block"):
        Columns(data(), (np.array([0, 1]), np.array([1, 2, 3, 4])))
