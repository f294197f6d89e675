"""The tables that scikit-learn ships are those of its own functions, bit for bit."""

from __future__ import annotations

import numpy as np
from sklearn import datasets

from fedssca.data import shipped


def test_digits() -> None:
    expected, found = datasets.load_digits(), shipped.digits()
    assert np.array_equal(found["x"], expected.data)
    assert np.array_equal(found["y"], expected.target)
    assert (found["x"].dtype, found["y"].dtype) == (np.uint8, np.int32)


def test_diabetes() -> None:
    expected, found = datasets.load_diabetes(scaled=False), shipped.diabetes()
    assert list(found) == [*expected.feature_names, "progression"]
    assert np.array_equal(np.column_stack(list(found.values())[:-1]), expected.data)
    assert np.array_equal(found["progression"], expected.target)


def test_breast_cancer() -> None:
    expected, found = datasets.load_breast_cancer(), shipped.breast_cancer()
    assert list(found) == [*expected.feature_names, "malignant"]
    assert np.array_equal(np.column_stack(list(found.values())[:-1]), expected.data)
    assert np.array_equal(found["malignant"], expected.target == 0)
