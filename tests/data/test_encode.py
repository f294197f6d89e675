"""The encoder of tables, by hand: what simulator, sites and predictions make of columns."""

from __future__ import annotations

import numpy as np
import pytest

from fedssca.data.dataset import from_table
from fedssca.data.encode import (
    codes,
    encode,
    feature_names,
    joined_moments,
    kinds_of,
    partial_moments,
    standardise,
)
from fedssca.errors import UserError

AGE = np.array([1.0, 3.0, 5.0])
TOWN = np.array(["b", "a", "b"])


def test_numbers_are_standardised_and_text_is_one_hot() -> None:
    kinds, moments = {"town": ["a", "b"]}, {"age": [3.0, 2.0]}
    x = encode([("age", AGE), ("town", TOWN), ("raw", AGE)], kinds, moments)
    assert x.dtype == np.float32
    assert x.tolist() == [[-1, 0, 1, 1], [0, 1, 0, 3], [1, 0, 1, 5]]
    assert feature_names(["age", "town", "raw"], kinds) == ["age", "town=a", "town=b", "raw"]


def test_an_unseen_kind_is_all_zeros_and_a_constant_column_is_zero() -> None:
    x = encode([("town", np.array(["c"])), ("age", AGE[:1])], {"town": ["a", "b"]}, {"age": [1, 0]})
    assert x.tolist() == [[0, 0, 0]]
    both = np.array([[1.0, 7.0], [3.0, 7.0]])
    assert standardise(both, np.array([2.0, 7.0]), np.array([1.0, 0.0])).tolist() == [
        [-1, 0],
        [1, 0],
    ]


def test_a_column_of_another_type_than_in_training_is_named() -> None:
    with pytest.raises(UserError, match="column 'age' is text here, and numbers in the training"):
        encode([("age", TOWN)], {}, {"age": [0, 1]})
    with pytest.raises(UserError, match="column 'town' is numbers here, and text in the training"):
        encode([("town", AGE)], {"town": ["a"]}, {})


def test_moments_of_sites_join_to_those_of_all_rows() -> None:
    values = np.random.default_rng(0).normal(100, 7, 50)
    parts = [
        partial_moments(values[:11]),
        partial_moments(values[11:12]),
        partial_moments(values[12:]),
    ]
    mean, deviation = joined_moments(parts)
    assert mean == pytest.approx(values.mean(), rel=1e-12)
    assert deviation == pytest.approx(values.std(), rel=1e-12)
    assert joined_moments([partial_moments(np.full(4, 0.1))]) == [pytest.approx(0.1), 0.0]


def test_columns_beside_x_are_places_among_their_kinds() -> None:
    assert kinds_of(TOWN) == ["a", "b"]
    assert codes(TOWN, ["a", "b"]).tolist() == [1, 0, 1]
    assert codes(AGE, None).dtype == np.float32


def test_sites_encode_as_the_simulator_does() -> None:
    rng = np.random.default_rng(1)
    table = {"age": rng.normal(50, 9, 40), "town": rng.choice(["n", "s"], 40)}
    data = from_table("t", {**table, "y": np.arange(40) % 2 * 1.0}, "y", 0.25, 3, train_rows=30)
    moments = {"age": joined_moments([partial_moments(table["age"][:30])])}
    ours = encode(table.items(), {"town": kinds_of(table["town"][:30])}, moments)
    assert data.features == tuple(feature_names(table, {"town": ["n", "s"]}))
    both = np.concatenate([data.train["x"], data.test["x"]])
    np.testing.assert_allclose(ours, both, rtol=1e-6)
