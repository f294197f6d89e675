"""Weights of classes and rows: a row of weight 2 is two rows, as in scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from fedssca import FederatedClassifier, FederatedRegressor
from fedssca.errors import UserError
from fedssca.problem.weights import class_weights, sample_weights
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import train

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3)).astype(np.float32)
Y = (X[:, 0] - 0.5 * X[:, 1] + RNG.normal(size=240) > 0.8).astype(int)
WEIGHT = RNG.integers(0, 4, 240).astype(float)
TARGET = X @ np.array([1.0, 2.0, -1.0]) + RNG.normal(size=240)
L2 = 0.01
QUICK = {"model": "linear", "l2": L2, "rounds": 200, "batch": 80}


def coefficients(**weights: object) -> np.ndarray:
    """Those of scikit-learn for the same objective: the sum of its losses is 240 times our mean."""
    given = weights.pop("sample_weight", None)
    strength = {"C": 1 / (2 * L2 * 240), "fit_intercept": False, "tol": 1e-9, "max_iter": 1000}
    made = LogisticRegression(**strength, **weights)
    return np.asarray(made.fit(np.c_[np.ones(240), X], Y, sample_weight=given).coef_[0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fitted", [{"sample_weight": WEIGHT}, {"class_weight": "balanced"}])
def test_a_linear_classifier_matches_scikit_learn(fitted: dict[str, object]) -> None:
    rows = {k: v for k, v in fitted.items() if k == "sample_weight"}
    given = {k: v for k, v in fitted.items() if k != "sample_weight"}
    model = FederatedClassifier(**QUICK, **given).fit(X, Y, clients=3, **rows)  # type: ignore[arg-type]
    w = np.concatenate([np.ravel(part) for part in model.result_.params])
    np.testing.assert_allclose(w, coefficients(**fitted), atol=0.01)
    assert np.abs(w - coefficients()).max() > 0.1


@pytest.mark.filterwarnings("ignore")
def test_weight_two_is_the_row_twice() -> None:
    """The objectives differ by their number of rows, and l2 with them."""
    double = np.where(np.arange(240) < 120, 2.0, 1.0)
    twice = np.r_[np.arange(240), np.arange(120)]
    more = FederatedRegressor(**QUICK).fit(X, TARGET, sample_weight=double)
    again = FederatedRegressor(**{**QUICK, "l2": L2 * 240 / 360}).fit(X[twice], TARGET[twice])
    oracle = Ridge(alpha=2 * L2 * 240).fit(X, TARGET, sample_weight=double)
    np.testing.assert_allclose(more.predict(X), again.predict(X), atol=0.05)
    np.testing.assert_allclose(more.predict(X), oracle.predict(X), atol=0.08)


@pytest.mark.parametrize("split", ["sample", "feature"])
@pytest.mark.filterwarnings("ignore")
def test_a_run_weighs_rows_and_classes_but_not_limits(tmp_path: Path, split: str) -> None:
    path = tmp_path / "rows.csv"
    table = np.c_[X, WEIGHT, Y]
    np.savetxt(path, table, delimiter=",", header="a,b,c,times,y", comments="", fmt="%.6f")
    job = build(
        parse(
            "",
            [f"data.path={path}", "data.clients=3", f"data.split={split}", "data.weight=times",
             "model.name=linear", "problem.class_weights={1=2.0}", "algorithm.rounds=20",
             "problem.constraint=[{kind='loss',limit=0.9}]"],
        )
    )  # fmt: skip
    assert job.dataset.features == ("a", "b", "c")
    rows = job.clients.columns
    result = train(job)
    scores = np.asarray(job.problem.scores(result.w, rows))  # type: ignore[misc]
    loss = np.logaddexp(scores[:, 0], scores[:, 1]) - scores[np.arange(len(scores)), rows["y"]]
    own = rows["sample_weight"] * np.where(rows["y"] == 1, 2.0, 1.0)
    norm = job.config.problem.l2 * (result.w @ result.w)
    assert result.final["objective"] == pytest.approx((own * loss).mean() + norm, rel=1e-4)
    assert result.final["constraints"][0] == pytest.approx(loss.mean() - 0.9, rel=1e-4)


def test_wrong_weights_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the weight is -1 in row 2"):
        sample_weights("rows", np.array([1.0, -1.0]))
    with pytest.raises(UserError, match="all sample weights are zero"):
        sample_weights("rows", np.zeros(3))
    with pytest.raises(UserError, match="there is no class 'sik'; did you mean 'sick'"):
        class_weights({"sik": 2.0}, np.array([0, 1]), ["sick", "well"])
    with pytest.raises(UserError, match="has no classes"):
        parse("", ["problem.task=regression", "problem.class_weights=balanced"])
    path = tmp_path / "rows.csv"
    path.write_text("a,w,y\n1,x,0\n2,y,1\n3,x,0\n4,y,1\n5,x,0\n6,y,1\n")
    with pytest.raises(UserError, match=r"data.weight = 'w': the column holds text"):
        build(parse("", [f"data.path={path}", "data.weight=w", "data.clients=1"]))
    with pytest.raises(UserError, match="has no column 'v'"):
        build(parse("", [f"data.path={path}", "data.weight=v", "data.clients=1"]))
