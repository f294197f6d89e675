"""DataFrames as input of the classifier: names, text, missing cells, groups."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedssca import FederatedClassifier, UserError, false_negative_rate_at_most, linear

N = 120
RNG = np.random.default_rng(0)
AGE = RNG.normal(50, 10, N).round()
SEX = np.where(RNG.random(N) < 0.5, "f", "m")
FRAME = pd.DataFrame(
    {
        "patient_id": np.arange(1000, 1000 + N),
        "age": np.where(np.arange(N) % 10 == 3, np.nan, AGE),
        "town": pd.Series(np.array(["north", "south", None], object)[np.arange(N) % 3]),
        "smoker": np.where(RNG.random(N) < 0.3, "yes", "no"),
        "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N) % 30, unit="D"),
        "sex": SEX,
    }
)
Y = np.where(AGE + RNG.normal(0, 5, N) > 52, "sick", "well")
FEATURES = (
    *("age", "age missing", "town missing", "town=north", "town=south", "smoker", "seen"),
    *("sex=f", "sex=m"),
)


@pytest.fixture(scope="module")
def fitted() -> FederatedClassifier:
    """Trained with limits on a class and on groups by name; the group is no feature."""
    limits = [
        {"kind": "fnr", "limit": 0.1, "positive": "sick"},
        {"kind": "parity", "limit": 0.5, "column": "sex", "positive": "sick"},
        lambda columns: false_negative_rate_at_most(
            0.9, columns["y"], positive="well", classes=list(columns["classes"])
        ),
    ]
    model = FederatedClassifier("linear", constraints=limits, rounds=60, drop=["sex", "patient_id"])
    with pytest.warns(ConvergenceWarning):
        return model.fit(FRAME, Y, clients=3)


@pytest.mark.long
def test_text_missing_cells_and_limits_by_name(fitted: FederatedClassifier) -> None:
    names = [entry["name"] for entry in fitted.result_.certificate["constraints"]]
    assert names == ["fnr_0", "parity_sex_0", "parity_sex_0_lower", "fnr"]
    predicted = fitted.predict(FRAME)
    assert np.mean(predicted[Y == "sick"] == "well") <= 0.1
    gap = [np.mean(predicted[sex == SEX] == "sick") for sex in ("f", "m")]
    assert abs(gap[0] - gap[1]) <= 0.5
    assert list(fitted.feature_names_in_) == ["age", "town", "smoker", "seen"]
    assert fitted.encoder_ is not None
    assert fitted.encoder_.features == FEATURES[:-2]
    assert abs(fitted.score(FRAME, Y) - fitted.result_.final["train_accuracy"]) < 1e-6


@pytest.mark.long
def test_it_is_the_same_after_pickling(fitted: FederatedClassifier) -> None:
    """Also with a lambda among the limits, and it can be fitted again."""
    back = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(back.predict_proba(FRAME), fitted.predict_proba(FRAME))
    with pytest.warns(ConvergenceWarning):
        again = clone(back).fit(FRAME, Y, clients=3)
    np.testing.assert_array_equal(again.result_.w, fitted.result_.w)


@pytest.mark.usefixtures("untrained")
def test_prediction_takes_columns_in_any_order_and_names_those_that_are_missing() -> None:
    with pytest.warns(UserWarning, match="'patient_id' is left out: it looks like an id"):
        model = FederatedClassifier("mlp", hidden=4).fit(FRAME, Y)
    assert model.n_features_in_ == 6
    assert model.encoder_ is not None
    assert model.encoder_.features == FEATURES
    expected = model.predict_proba(FRAME)
    shuffled = FRAME[["sex", "seen", "smoker", "town", "age"]].assign(more=1)
    np.testing.assert_array_equal(model.predict_proba(shuffled), expected)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict_proba(FRAME.to_numpy(object)), expected)
    new = FRAME[:1].assign(town="west", age=None, seen=None)
    assert np.isfinite(model.predict_proba(new)).all()
    for rows, message in (
        (FRAME[["sex", "seen"]], "X lacks the columns 'age', 'town', 'smoker', which the model"),
        (FRAME.rename(columns={"age": "Age"}), "lacks the column 'age'.*did you mean 'Age'"),
        (FRAME.assign(age="old"), "X: column 'age' is text here"),
    ):
        with pytest.raises(UserError, match=message):
            model.predict(rows)
    with (
        pytest.warns(UserWarning, match="valid feature names"),
        pytest.raises(UserError, match="X has 2 features"),
    ):
        model.predict(FRAME.to_numpy(object)[:, :2])


@pytest.mark.usefixtures("untrained")
def test_numbers_are_used_as_they_are_unless_encode_says_otherwise() -> None:
    frame = pd.DataFrame({"a": AGE, "b": np.arange(N) % 7, "c": np.arange(N) % 2 == 0})
    array = frame.to_numpy(float)
    plain = FederatedClassifier(hidden=4)
    expected = clone(plain).fit(array, Y).predict_proba(array)
    model = clone(plain).fit(frame, Y)
    assert model.encoder_ is None
    np.testing.assert_array_equal(model.predict_proba(frame), expected)
    with pytest.raises(UserError, match="Feature names seen at fit time, yet now missing:\n- b"):
        model.predict(frame[["a", "c"]])
    with pytest.raises(UserError, match="encode=True"):
        model.predict(frame.assign(a=np.nan))
    scaled = clone(plain).set_params(encode=True).fit(array, Y)
    assert scaled.encoder_.features == ("x0", "x1", "x2")
    holes = np.where(np.eye(N, 3) == 1, np.nan, array)
    assert np.isfinite(scaled.predict_proba(holes)).all()
    standard = StandardScaler().fit_transform(array)
    np.testing.assert_allclose(
        scaled.predict_proba(array), clone(plain).fit(standard, Y).predict_proba(standard), 1e-4
    )


@pytest.mark.usefixtures("untrained")
def test_clients_with_frames_of_their_own_share_one_encoder() -> None:
    """Columns are matched by name, and means are those of all rows."""
    rows = FRAME.drop(columns="patient_id")
    parties = [(rows[:40], Y[:40]), (rows[40:][[*rows.columns[::-1]]], pd.Series(Y[40:]))]
    model = FederatedClassifier(hidden=4).fit(parties)
    whole = FederatedClassifier(hidden=4).fit(rows, Y)
    assert model.encoder_ is not None
    assert whole.encoder_ is not None
    assert model.encoder_.features == whole.encoder_.features
    np.testing.assert_allclose(
        model.encoder_.encode(_table(model, rows)), whole.encoder_.encode(_table(whole, rows)), 1e-5
    )
    numbers = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [5.0, 6, 7, 8]})
    both = [(numbers, [0, 1, 0, 1]), (numbers[["b", "a"]], [0, 1, 0, 1])]
    seen: list[np.ndarray] = []
    FederatedClassifier("linear", constraints=lambda c: seen.append(c["x"]) or ()).fit(both)
    np.testing.assert_array_equal(seen[0], np.tile(numbers, (2, 1)))


@pytest.mark.usefixtures("untrained")
def test_functions_see_the_columns_to_keep() -> None:
    seen: dict[str, np.ndarray] = {}
    model = FederatedClassifier("linear", keep=["sex", "patient_id"])
    model.set_params(constraints=lambda columns: seen.update(columns) or ()).fit(FRAME, Y)
    assert set(seen) == {"x", "y", "client", "classes", "sex", "patient_id"}
    np.testing.assert_array_equal(seen["sex"], SEX == "m")
    assert model.encoder_ is not None
    assert "patient_id" in model.encoder_.features  # what is kept is no id


@pytest.mark.long
def test_pipelines_and_searches(recwarn: pytest.WarningsRecorder) -> None:
    limit = {"kind": "fnr", "limit": 0.3, "positive": "sick"}
    model = FederatedClassifier("linear", constraints=[limit], rounds=20, encode=True)
    rows = FRAME[["age", "town", "sex"]]
    assert cross_val_score(model, rows, Y, cv=2, params={"clients": 2}).min() > 0.6
    search = GridSearchCV(model, {"l2": [1e-3, 10.0]}, cv=2).fit(rows, Y, clients=2)
    assert search.best_score_ > 0.6
    assert set(search.predict(rows)) == {"sick", "well"}
    scaler = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include=float)),
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    pipe = make_pipeline(scaler, clone(model)).fit(rows, Y)
    assert pipe.score(rows, Y) > 0.6
    assert list(pipe[-1].feature_names_in_) == ["age", "town", "sex"]
    assert all(issubclass(each.category, ConvergenceWarning) for each in recwarn)


def test_a_model_of_the_user_can_be_pickled() -> None:
    model = FederatedClassifier(linear(3, 2), constraints=[lambda columns: ()])
    back = pickle.loads(pickle.dumps(model))
    assert back.constraints[0]({}) == ()
    np.testing.assert_array_equal(back.model.init(0)[1], np.zeros((1, 3)))


def _table(model: FederatedClassifier, rows: pd.DataFrame) -> dict[str, np.ndarray]:
    from fedssca.run.estimators.frames import raw_table

    assert model.encoder_ is not None
    return raw_table(rows, "")
