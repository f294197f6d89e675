"""The scikit-learn style classifier."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any
from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from fedssca import UserError, false_negative_rate_at_most, linear, loss_at_most
from fedssca.problem.constraints import Constraint, cross_entropy
from fedssca.run.estimators import FederatedClassifier
from fedssca.run.result import Result


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    """Scaled features, and names as labels."""
    data = load_iris()
    return StandardScaler().fit_transform(data.data), data.target_names[data.target]


@pytest.fixture(scope="module")
def fitted(iris: tuple[np.ndarray, np.ndarray]) -> FederatedClassifier:
    x, y = iris
    parties = [(x[i::3], y[i::3]) for i in range(3)]
    return FederatedClassifier(hidden=16, constraints=[loss_at_most(0.2)]).fit(parties)


@pytest.mark.long
def test_parties_and_limits(
    fitted: FederatedClassifier, iris: tuple[np.ndarray, np.ndarray]
) -> None:
    x, y = iris
    assert isinstance(fitted.result_, Result)
    assert fitted.feasible_
    assert fitted.result_.final["constraints"][0] <= 0
    assert list(fitted.classes_) == ["setosa", "versicolor", "virginica"]
    assert fitted.n_features_in_ == 4
    assert fitted.score(x, y) > 0.93
    chances = fitted.predict_proba(x)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-5)
    assert (fitted.classes_[chances.argmax(axis=1)] == fitted.predict(x)).all()
    assert abs(fitted.score(x, y) - fitted.result_.final["train_accuracy"]) < 1e-6
    cost = -np.log(chances[np.arange(150), np.searchsorted(fitted.classes_, y)]).mean()
    assert abs(cost - fitted.result_.final["train_cost"]) < 1e-4
    assert fitted.predict(x[:0]).shape == (0,)


def test_a_fitted_one_can_be_pickled(
    fitted: FederatedClassifier, iris: tuple[np.ndarray, np.ndarray]
) -> None:
    back = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(back.predict_proba(iris[0]), fitted.predict_proba(iris[0]))


@pytest.mark.long
def test_the_norm_as_objective_and_nested_limits(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    seen: dict[str, np.ndarray] = {}

    def first_party(columns: dict[str, np.ndarray]) -> list[Constraint]:
        seen.update(columns)
        share = float((columns["client"] == 0).mean())

        def own(scores: Any, batch: Any) -> Any:
            return cross_entropy(scores, batch) * (batch["client"] == 0) / share

        return [Constraint("party 0", {"party 0": (1.0, own)}, 0.35)]

    parties = [{"x": x[i::2], "y": y[i::2], "age": np.arange(75)} for i in range(2)]
    limits = [[loss_at_most(0.4)], first_party]
    model = FederatedClassifier(hidden=16, constraints=limits, objective="norm").fit(parties)
    assert set(seen) == {"x", "y", "client", "age", "classes"}
    assert seen["y"].dtype == np.int32
    assert len(model.result_.final["constraints"]) == 2
    assert max(model.result_.final["constraints"]) < 0.02
    assert model.result_.final["norm_sq"] < 100


def test_limits_name_classes_and_groups() -> None:
    """fnr of 'sick', and the error of every town, as mappings that can be pickled."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    y = np.where(x[:, 0] + rng.normal(size=120) > 0.5, "sick", "well")
    parties = [
        {"x": x[i::2], "y": y[i::2], "town": np.array(["north", "south", "east"] * 20)}
        for i in range(2)
    ]
    limits = [
        {"kind": "fnr", "limit": 0.1, "positive": "sick"},
        {"kind": "error", "limit": 0.9, "column": "town"},
    ]
    model = FederatedClassifier("linear", constraints=limits, rounds=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        pickle.loads(pickle.dumps(model)).fit(parties)
        model.fit(parties)
    predicted = model.predict(x)
    assert np.mean(predicted[y == "sick"] != "sick") <= 0.1
    names = [entry["name"] for entry in model.result_.certificate["constraints"]]
    assert names == ["fnr_0", *(f"error_town_{town}" for town in ("east", "north", "south"))]


@pytest.mark.long
def test_rows_shared_out_in_a_pipeline() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    model = FederatedClassifier("linear", rounds=100, batch=1000)
    pipe = make_pipeline(StandardScaler(), model).fit(x, y == 1)
    assert pipe.score(x, y == 1) > 0.95
    assert pipe.predict(x[:3]).dtype == bool
    assert pipe[-1].decision_function(x[:3]).shape == (3,)
    assert pipe[-1].feasible_  # nothing is asked, so nothing is broken


@pytest.mark.long
def test_settings_clone_and_cross_validation(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    model = FederatedClassifier(linear(4, 3), constraints=[loss_at_most(0.5)], rounds=20)
    other = clone(model).set_params(l2=0.5)
    assert (other.get_params()["l2"], other.rounds, model.l2) == (0.5, 20, 1e-4)
    assert set(model.get_params()) == {
        *("model", "hidden", "constraints", "objective", "l2", "rounds", "batch", "seed", "column"),
        *("max_rounds", "verbose", "encode", "keep", "drop"),
        *("confidence", "calibration_fraction", "certify", "class_weight"),
    }
    plain = clone(model).set_params(constraints=())
    assert cross_val_score(plain, x, y, cv=2, params={"clients": 2}).min() > 0.7


@pytest.mark.long
def test_the_same_seed_gives_the_same_model(iris: tuple[np.ndarray, np.ndarray]) -> None:
    ends = [FederatedClassifier("linear", rounds=10).fit(*iris).result_.w for _ in range(2)]
    np.testing.assert_array_equal(*ends)


X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.array([0, 1] * 4)
FRAME = pd.DataFrame(X, columns=["a", "b"])
HOLE = np.where(np.arange(16).reshape(8, 2) == 3, np.nan, X)
BAD: list[tuple[dict[str, Any], tuple[Any, ...], str]] = [
    ({}, ([],), "there are no parties"),
    ({}, (X,), "labels are missing"),
    ({}, ([(X, Y), (X[:, :1], Y)],), "client 1 has 1 features, client 0 has 2"),
    ({}, ([(X, Y), (HOLE, Y)],), "client 1: X holds NaN"),
    ({}, (HOLE, Y), "X holds NaN"),
    ({}, (X, np.zeros(8)), "at least 2 classes"),
    ({}, (X, Y[:5]), "y has 5 rows, x has 8"),
    ({}, (X, X), "one label per row"),
    ({}, (X, X[:, 0]), "fractions"),
    ({}, (X, np.where(Y == 1, np.nan, 0)), "y holds NaN"),
    ({}, (X, np.array(["a", None] * 4, object)), "mixes types"),
    ({}, (X[:, 0], Y), "X has shape"),
    ({}, ([["a"] * 2] * 8, Y), "text is encoded in a DataFrame"),
    ({}, ([[{}] * 2] * 8, Y), "must be a string or a real number, not 'dict'"),
    ({}, (X * 1j, Y), "Complex data"),
    ({}, (pd.DataFrame(X),), "labels are missing"),
    ({"encode": "yes"}, (X, Y), "encode = 'yes'"),
    ({"drop": ["a"]}, (X, Y), "give a DataFrame"),
    ({"drop": ["c"]}, (FRAME, Y), "no column 'c'; known are a, b"),
    ({"keep": ["c"]}, (FRAME, Y), "keep: there is no column 'c'"),
    ({}, ([(FRAME, Y), (FRAME[["a"]], Y)],), "client 0 has a column 'b', and client 1 has not"),
    ({}, (FRAME[["a", "a"]], Y), "names the column 'a' twice"),
    ({}, (FRAME.assign(b=np.nan), Y), "column 'b' is empty in all 8 rows"),
    ({}, ([(FRAME, Y), (FRAME.assign(b="x"), Y)],), "text at one site and numbers at another"),
    (
        {"constraints": {"kind": "parity", "limit": 0.1, "column": "d"}},
        (FRAME, Y),
        "no column 'd'; known are a",
    ),
    ({}, ([(X, Y), (X, Y.astype(str))],), "another type"),
    ({}, ([(X, Y), {"x": X}],), 'the columns "x" and "y" are needed'),
    ({}, ([(X, Y), (X[:0], Y[:0])],), "client 1: there are no rows"),
    ({}, ([{"x": X, "y": Y, "g": Y}, (X, Y)],), "client 1 should have"),
    ({}, ([{"x": X, "y": Y, "g": Y.astype(complex)}],), "g holds complex"),
    ({"constraints": [{"kind": "fnr"}]}, (X, Y), "has no limit"),
    (
        {"constraints": [{"kind": "fnr", "limit": 0.1}]},
        (X, Y.astype(str)),
        'counts as positive: "0"',
    ),
    (
        {"constraints": lambda c: false_negative_rate_at_most(0.1, c["y"])},
        (X, Y.astype(str)),
        "needs positive = <class>",
    ),
    (
        {"constraints": [{"kind": "fnr", "limit": 0.1, "positive": "2"}]},
        (X, Y.astype(str)),
        'the classes are: "0", "1"',
    ),
    ({}, ([3],), "client 0 must be a pair"),
    ({}, (X, Y, 9), "clients is 9"),
    ({"model": "tree"}, (X, Y), "model = 'tree'"),
    ({"model": linear(3, 2)}, (X, Y), "takes 3 features"),
    ({"hidden": 0}, (X, Y), "hidden = 0"),
    ({"batch": 0}, (X, Y), "batch = 0"),
    ({"rounds": 0}, (X, Y), "rounds = 0"),
    ({"rounds": "many"}, (X, Y), "rounds = 'many'"),
    ({"rounds": "auto", "max_rounds": 0}, (X, Y), "max_rounds = 0"),
    ({"objective": "norm"}, (X, Y), "add a constraint"),
    ({"objective": "worst_group"}, (X, Y), "needs column = <name>"),
    ({"objective": "worst_group", "column": "sex"}, (X, Y), "there is no column 'sex'"),
    ({"constraints": [0.3]}, (X, Y), "constraints holds 0.3"),
]


@pytest.mark.parametrize(("settings", "data", "message"), BAD, ids=[m for *_, m in BAD])
def test_bad_input_is_one_clear_line(
    settings: dict[str, Any], data: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        FederatedClassifier(**{"rounds": 2, **settings}).fit(*data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_predicting_too_early_or_other_features(fitted: FederatedClassifier) -> None:
    with pytest.raises(NotFittedError):
        FederatedClassifier().predict(X)
    with pytest.raises(UserError, match=r"X has 2 features, but .* is expecting 4"):
        fitted.predict(X)


def test_the_package_does_not_import_sklearn() -> None:
    code = "import sys, fedssca; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


def test_a_model_that_is_not_finished_is_said() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = (x[:, 0] + rng.normal(size=60) > 0).astype(int)
    model = FederatedClassifier("linear", constraints=loss_at_most(0.01), rounds=20)
    with pytest.warns(ConvergenceWarning, match="is over its limit 0.01"):
        model.fit(x, y, clients=2)
    assert not model.converged_


def _name(check: Any) -> str:
    return str(check.func.__name__)


def _checked(model: Any, check: Callable[[Any], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            check(model)
        except SkipTest as reason:
            pytest.skip(str(reason))


UNLIKE = {"check_sample_weight_equivalence_on_dense_data"}
"""Not the same rows are drawn for batches as with repeated rows, so the bits are not the same."""
CHECKS = [
    pair
    for pair in estimator_checks_generator(FederatedClassifier("linear", rounds=10))
    if _name(pair[1]) not in UNLIKE
]
"""The checks of scikit-learn, each with an estimator."""
OF_TRAINING = {"check_classifiers_train", "check_fit_idempotent", "check_pipeline_consistency"}
"""The checks that are about how well or how often it is trained. In all others a model that is
not trained takes and returns the same, and is done in a moment."""


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    ("model", "check"), [pair for pair in CHECKS if _name(pair[1]) not in OF_TRAINING]
)
def test_scikit_learn_accepts_it(model: Any, check: Callable[[Any], None]) -> None:
    _checked(model, check)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "check"), [pair for pair in CHECKS if _name(pair[1]) in OF_TRAINING]
)
def test_scikit_learn_accepts_its_training(model: Any, check: Callable[[Any], None]) -> None:
    _checked(model, check)


@pytest.mark.long
def test_limits_are_promised_for_new_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4)).astype(np.float32)
    y = (x[:, 0] + 0.3 * rng.normal(size=600) > 0).astype(int)
    limit = {"kind": "fnr", "limit": 0.4, "positive": 1}
    model = FederatedClassifier(
        "linear", constraints=[limit], rounds=20, confidence=0.9, calibration_fraction=0.4
    ).fit(x, y, clients=2)
    entry = model.result_.certificate["constraints"][0]
    assert model.certified_ is entry["certified"] is True
    assert (entry["bound"], entry["confidence"]) == (0.4, pytest.approx(0.9))
    assert 80 < entry["calibration_rows"] < 160
    assert sum(client["rows"] for client in model.result_.clients) < 400


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"confidence": 1.0}, "confidence = 1.0: it must lie between 0 and 1"),
        ({"confidence": 0.9, "calibration_fraction": 0}, "calibration_fraction = 0"),
        ({"confidence": 0.9, "certify": "all"}, "certify = 'all'"),
    ],
)
def test_promises_that_cannot_be_made_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        FederatedClassifier("linear", **settings).fit(np.eye(4), [0, 1, 0, 1], clients=1)
