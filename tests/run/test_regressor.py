"""The regressor: scikit-learn's own checks, limits by column, losses, pickling, bad targets."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import estimator_checks_generator

from fedssca import FederatedRegressor, UserError
from tests.run.test_estimators import OF_TRAINING, UNLIKE, _checked, _name

CHECKS = [
    pair
    for pair in estimator_checks_generator(FederatedRegressor("linear", rounds=10))
    if _name(pair[1]) not in UNLIKE
]
TRAINED = OF_TRAINING | {"check_regressors_train", "check_regressors_int"}


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    ("model", "check"), [pair for pair in CHECKS if _name(pair[1]) not in TRAINED]
)
def test_scikit_learn_accepts_it(model: Any, check: Callable[[Any], None]) -> None:
    _checked(model, check)


@pytest.mark.long
@pytest.mark.parametrize(("model", "check"), [p for p in CHECKS if _name(p[1]) in TRAINED])
def test_scikit_learn_accepts_its_training(model: Any, check: Callable[[Any], None]) -> None:
    _checked(model, check)


def test_it_is_as_good_as_ridge_and_keeps_its_limits() -> None:
    raw = load_diabetes(as_frame=True, scaled=False)
    limits = [
        {"kind": "mae", "limit": 44.0, "column": "sex"},
        {"kind": "beyond", "limit": 0.1, "bound": 100},
    ]
    model = FederatedRegressor("linear", l2=1e-3, constraints=limits, rounds=60, encode=True)
    model.fit(raw.data, raw.target)
    assert model.feasible_
    found = {entry["name"]: entry["value"] for entry in model.result_.certificate["limits"]}
    error = np.abs(model.predict(raw.data) - raw.target)
    assert found["mae_sex_1"] == pytest.approx(error[raw.data["sex"] == 1].mean(), rel=1e-4)
    assert found["mae_sex_1"] <= 44.0
    assert found["beyond"] == pytest.approx((error > 100).mean())
    ridge = Ridge().fit(raw.data, raw.target).score(raw.data, raw.target)
    assert model.score(raw.data, raw.target) > ridge - 0.02
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(raw.data), model.predict(raw.data))


@pytest.mark.usefixtures("untrained")
def test_bad_targets_and_limits_are_one_line() -> None:
    x = pd.DataFrame({"a": np.arange(30.0), "b": np.tile([0.0, 1.0], 15)})
    for y, settings, words in (
        (np.ones(30), {}, "nothing to predict"),
        (np.arange(30.0) - 3, {"loss": "poisson"}, "counts, which are 0 or more"),
        (["a", "b"] * 15, {}, "no column of numbers"),
        (np.arange(30.0), {"loss": "cubic"}, "unknown"),
        (np.arange(30.0), {"constraints": {"kind": "fnr", "limit": 0.1}}, "it takes loss"),
        (np.arange(30.0), {"constraints": {"kind": "beyond", "limit": 0.1}}, "needs bound"),
    ):
        with pytest.raises(UserError, match=words):
            FederatedRegressor("linear", **settings).fit(x, y)
