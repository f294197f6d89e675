"""Several labels at once: label sets, the loss, limits and metrics, against scikit-learn."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    f1_score,
    hamming_loss,
    log_loss,
    roc_auc_score,
)

from fedssca import load
from fedssca.data import Columns, Rows, check
from fedssca.data.encode.label_sets import label_sets, marks_of, sets_of, subsets
from fedssca.data.raw import from_table
from fedssca.errors import UserError
from fedssca.evaluate.class_metrics import label_metrics
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.problem.constraints import (
    Constraint,
    Groups,
    calibration_at_most,
    error_at_most,
    false_negative_rate_at_most,
    false_positive_rate_at_most,
    opportunity_gap_at_most,
    parity_gap_at_most,
    precision_at_least,
    recall_at_least,
)
from fedssca.problem.models import classifier, linear, mlp, party_mlp
from fedssca.problem.tasks import multilabel

NAMES = ("a", "b", "c")
rng = np.random.default_rng(3)
X = rng.normal(size=(80, 5)).astype(np.float32)
Y = (X[:, :3] + rng.normal(size=(80, 3)) > [0.0, 0.3, -0.3]).astype(int)
SEX = (X[:, 4] > 0).astype(np.int32)
DATA = {"x": X, "y": label_sets(Y), "sex": SEX}
BLOCKS = (np.array([0, 3]), np.array([1, 2, 4]))


def limits() -> list[Constraint]:
    groups, own = Groups({"sex": SEX}), {"positive": "b", "classes": NAMES}
    return [
        *false_negative_rate_at_most(0.2, Y, **own),
        *false_positive_rate_at_most(0.2, Y, groups=groups, **own),
        *recall_at_least(0.8, Y, positive="c", classes=NAMES),
        *precision_at_least(0.8, Y, **own),
        *parity_gap_at_most(0.1, groups, **own),
        *opportunity_gap_at_most(0.1, groups, None, Y, **own),
        *calibration_at_most(0.1, groups, **own),
        *error_at_most(0.3),
        *error_at_most(0.3, positive="a", classes=NAMES),
    ]


def test_label_sets_and_tables_are_the_same() -> None:
    y = label_sets(Y)
    np.testing.assert_array_equal(y, Y @ [1, 2, 4])
    np.testing.assert_array_equal(sets_of(y, 3), Y)
    assert subsets(0) == [0]
    assert subsets(1 << 23) == [0, 1 << 23]
    for cells in (["no", "Yes", "n "], [0.0, 1.0, 0.0], [False, True, False], ["0", "1", "F"]):
        assert marks_of(np.array(cells), "a", "rows").tolist() == [False, True, False]


def test_rates_and_metrics_are_those_of_scikit_learn() -> None:
    problem = classifier(linear(5, 3), limits(), task=multilabel(NAMES))
    w = problem.start + jnp.asarray(0.7 * rng.normal(size=problem.dimension), jnp.float32)
    row = evaluator_over(problem, Rows(DATA, (80,)), None).row(w)
    assert problem.scores is not None
    scores = np.asarray(problem.scores(w, {k: jnp.asarray(v) for k, v in DATA.items()}))
    found, chances = scores > 0, 1 / (1 + np.exp(-scores.astype(float)))
    losses = [log_loss(Y[:, k], chances[:, k]) for k in range(3)]
    own = Y[:, 1] == 1
    rates = {
        "cost": np.mean(losses),
        "label_accuracy": 1 - hamming_loss(Y, found),
        "exact_match": accuracy_score(Y, found),
        "f1_micro": f1_score(Y, found, average="micro"),
        "accuracy[b]": (found[:, 1] == own).mean(),
        "fnr_1": (~found[own, 1]).mean(),
        "fpr_1_sex_1": found[~own & (SEX == 1), 1].mean(),
        "recall_2": found[Y[:, 2] == 1, 2].mean(),
        "precision_1": own[found[:, 1]].mean(),
        "parity_sex": found[SEX == 1, 1].mean() - found[SEX == 0, 1].mean(),
        "opportunity_sex": found[own & (SEX == 1), 1].mean() - found[own & (SEX == 0), 1].mean(),
        "calibration_sex_1": (chances[:, 1] - own)[SEX == 1].mean(),
        "error": (found != Y).any(axis=1).mean(),
        "error_0": (found[:, 0] != Y[:, 0]).mean(),
    }
    for name, value in rates.items():
        assert row[f"train_{name}"] == pytest.approx(value, abs=1e-5), name
    metrics = label_metrics(chances, Y, NAMES)
    assert metrics["auc"] == pytest.approx(roc_auc_score(Y, chances, average="macro"))
    assert metrics["f1"] == pytest.approx(f1_score(Y, found, average="macro"))
    each = metrics["per_label"]["b"]
    assert each["log_loss"] == pytest.approx(losses[1])
    assert each["brier"] == pytest.approx(brier_score_loss(Y[:, 1], chances[:, 1]))
    one = label_metrics(chances, np.ones_like(Y), NAMES)
    assert "auc" not in one
    assert "auc" not in one["per_label"]["a"]


@pytest.mark.parametrize(
    "model",
    [linear(5, 3), mlp(5, 4, 3), party_mlp(BLOCKS, [4, 3], [4], 3, join="concatenate")],
    ids=["linear", "mlp", "bottoms"],
)
def test_parties_with_columns_have_the_same_problem(model: Any) -> None:
    """Vertical = centralised: values, gradients and metrics, to 1e-10 in double precision."""
    with jax.enable_x64(True):
        made = {"limits": limits(), "task": multilabel(NAMES)}
        whole = classifier(model, made["limits"], task=made["task"])
        split = classifier(model, made["limits"], task=made["task"], features=BLOCKS)
        form = split.vertical
        assert form is not None
        start = np.asarray(whole.start, float)
        w = jnp.asarray(start + 0.5 * np.random.default_rng(1).normal(size=start.size))
        batch = {k: jnp.asarray(v, float if k == "x" else None) for k, v in DATA.items()}

        def joint(w: jax.Array) -> jax.Array:
            hs = [
                own(w[place], batch["x"][:, block])
                for own, place, block in zip(form.locals, form.blocks[1:], BLOCKS, strict=True)
            ]
            return form.head(w[form.blocks[0]], hs, batch)

        np.testing.assert_allclose(joint(w), whole.terms(w, batch), atol=1e-10)
        slopes = [jax.jacobian(lambda w: joint(w).mean(axis=1))(w)]
        slopes.append(jax.jacobian(lambda w: whole.terms(w, batch).mean(axis=1))(w))
        np.testing.assert_allclose(*slopes, atol=1e-10)
        wide = {**DATA, "x": X.astype(float)}
        rows = [
            evaluator_over(p, own, None).row(w)
            for p, own in ((whole, Rows(wide, (80,))), (split, Columns(wide, BLOCKS)))
        ]
        for name, value in rows[0].items():
            np.testing.assert_allclose(rows[1][name], value, atol=1e-10, err_msg=name)


def test_the_gradient_of_the_loss_is_that_of_finite_differences() -> None:
    with jax.enable_x64(True):
        scores = jnp.asarray(rng.normal(size=(80, 3)) * 2)
        batch, loss = {"y": jnp.asarray(DATA["y"])}, multilabel(NAMES).loss
        slope = jax.grad(lambda s: loss(s, batch).sum())(scores)
        for k in range(3):
            step = 1e-6 * jnp.eye(3)[k]
            near = (loss(scores + step, batch) - loss(scores - step, batch)) / 2e-6
            np.testing.assert_allclose(slope[:, k], near, atol=1e-8)


def test_two_labels_of_a_linear_model_are_two_logistic_regressions() -> None:
    """The gradient of our objective is 0 where scikit-learn's regressions, label by label, are."""
    data = load("diabetes", label=["progression > 140", "bp > 95"], kind="labels")
    x, sets = data.train["x"].astype(float), data.train["y"]
    y, l2, features = sets_of(sets, 2), 0.01, np.c_[x, np.ones(len(x))]
    # Our objective is the mean of two losses plus l2 |w|^2, in which the biases count.
    best = LogisticRegression(C=1 / (4 * l2 * len(y)), fit_intercept=False, tol=1e-10)
    own = np.stack([best.fit(features, y[:, k]).coef_[0] for k in range(2)])
    with jax.enable_x64(True):
        model = linear(9, 2, dtype="float64", exclusive=False)
        problem = classifier(model, l2=l2, task=multilabel(data.labels))
        w = jnp.asarray(np.concatenate([own[:, 9], own[:, :9].ravel()]))
        slopes = evaluator_over(problem, Rows({"x": x, "y": sets}, (len(x),)), None).gradients(w)
    assert np.linalg.norm(own) > 1
    np.testing.assert_allclose(slopes, 0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"a": [0, 1, 2, 1] * 5}, "the label 'a' is neither 0 nor 1 in row 3"),
        ({"a": ["yes", "no", "", "no"] * 5}, "the label 'a' is missing in row 3"),
        ({"a": [1] * 20}, "all training rows have the label 'a'; there is nothing to predict"),
        ({"a": None}, "there is no column for the label 'a'"),
        ({"b": np.array(["x", "y"] * 10)}, "the label 'b' is neither 0 nor 1 in row 1"),
    ],
)
def test_bad_labels(change: dict[str, Any], said: str) -> None:
    given = {"x": np.arange(20.0) ** 1.5, "a": [0, 1] * 10, "b": [True, False] * 10} | change
    table = {name: np.array(cells) for name, cells in given.items() if cells is not None}
    with pytest.raises(UserError, match=said):
        check(from_table("rows", table, ("a", "b"), 0.2, 0, kind="labels").encoded())


def test_scores_must_be_as_many_as_labels() -> None:
    problem = classifier(linear(5, 4), task=multilabel(NAMES))
    with pytest.raises(UserError, match="4 scores per row: 3 labels need one each"):
        evaluator_over(problem, Rows(DATA, (80,)), None).row(problem.start)
