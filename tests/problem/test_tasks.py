"""Tasks: losses and their gradients, units, metrics, and the limits of a regression."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.metrics import mean_absolute_error, mean_pinball_loss, mean_poisson_deviance, r2_score

import fedssca
from fedssca.data import Columns, Rows, load
from fedssca.data.encode.targets import TargetScale, as_strata, target_numbers, target_scale
from fedssca.errors import UserError
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.problem.constraints import (
    Groups,
    beyond_at_most,
    bias_at_most,
    error_at_most,
    loss_at_most,
    mae_at_most,
    mae_gap_at_most,
    rmse_at_most,
)
from fedssca.problem.models import classifier, linear, mlp
from fedssca.problem.tasks import Task, regression
from fedssca.run.build.calibrate import auto
from fedssca.run.simulate import simulate

LOSSES = ("squared", "huber", "quantile", "poisson")


def a_task(loss: str) -> Task:
    unit = TargetScale(0.0, 7.0) if loss == "poisson" else TargetScale(20.0, 5.0)
    return regression(loss, unit, width=0.7, quantile_level=0.8)  # type: ignore[arg-type]


def rows(loss: str, count: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((count, 5)).astype(np.float32)
    target = (
        rng.poisson(7.0, count)
        if loss == "poisson"
        else 20 + 5 * (x[:, 0] + rng.normal(size=count))
    )
    y = a_task(loss).target.encode(target)  # type: ignore[union-attr]
    return {"x": x, "y": y, "sex": (x[:, 1] > 0).astype(np.int32)}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_those_of_finite_differences(loss: str) -> None:
    with jax.enable_x64(True):
        scores = jnp.asarray(np.linspace(-2.3, 2.1, 40))[:, None]
        batch = {"y": jnp.asarray(rows(loss, 40)["y"], float)}
        loss_of = a_task(loss).loss
        slope = jax.grad(lambda s: loss_of(s, batch).sum())(scores)
        step = 1e-6
        near = (loss_of(scores + step, batch) - loss_of(scores - step, batch)) / (2 * step)
        np.testing.assert_allclose(slope[:, 0], near, atol=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_parties_with_columns_have_the_same_problem(loss: str, name: str) -> None:
    """Vertical = centralised: values, gradients and metrics, to 1e-10 in double precision."""
    data = rows(loss)
    groups = Groups({"sex": data["sex"]})
    limits = [
        *rmse_at_most(4.0, groups),
        *mae_gap_at_most(1.0, groups),
        *beyond_at_most(0.2, bound=6.0),
        *bias_at_most(0.5, groups),
    ]
    blocks = (np.array([0, 3]), np.array([1, 2, 4]))
    with jax.enable_x64(True):
        shape = {"dtype": "float64"}
        model = linear(5, 1, **shape) if name == "linear" else mlp(5, 6, 1, **shape)
        whole = classifier(model, limits, task=a_task(loss))
        split = classifier(model, limits, task=a_task(loss), features=blocks)
        form = split.vertical
        assert form is not None
        w = whole.start + 0.1 * jnp.asarray(np.random.default_rng(1).normal(size=whole.start.size))
        batch = {k: jnp.asarray(v) for k, v in data.items()}

        def joint(w: jax.Array) -> jax.Array:
            hs = [
                own(w[place], batch["x"][:, block])
                for own, place, block in zip(form.locals, form.blocks[1:], blocks, strict=True)
            ]
            return form.head(w[form.blocks[0]], hs, batch)

        np.testing.assert_allclose(joint(w), whole.terms(w, batch), atol=1e-10)
        means = [jax.jacobian(lambda w: joint(w).mean(axis=1))(w)]
        means.append(jax.jacobian(lambda w: whole.terms(w, batch).mean(axis=1))(w))
        np.testing.assert_allclose(*means, atol=1e-10)
        values = [
            evaluator_over(p, own, None).row(w)
            for p, own in ((whole, Rows(data, (60,))), (split, Columns(data, blocks)))
        ]
        for key, value in values[0].items():
            np.testing.assert_allclose(values[1][key], value, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("loss", LOSSES)
def test_metrics_and_limits_are_in_the_unit_of_the_target(loss: str) -> None:
    data, task = rows(loss), a_task(loss)
    limits = [
        *rmse_at_most(4.0),
        *mae_at_most(3.0),
        *beyond_at_most(0.2, bound=4.0),
        *bias_at_most(0.5),
    ]
    problem = classifier(linear(5, 1), limits, task=task)
    w = problem.start + 0.3
    row = evaluator_over(problem, Rows(data, (60,)), None).row(w)
    assert problem.scores is not None
    found = task.predict(
        np.asarray(problem.scores(w, {k: jnp.asarray(v) for k, v in data.items()}))
    )
    assert task.target is not None
    true = task.target.decode(data["y"])
    error = found - true
    rmse = float(np.sqrt(np.mean(error**2)))
    assert row["train_rmse"] == pytest.approx(rmse, rel=1e-5)
    assert row["train_mae"] == pytest.approx(mean_absolute_error(true, found), rel=1e-5)
    assert row["train_r2"] == pytest.approx(r2_score(true, found), rel=1e-5)
    assert row["train_beyond"] == pytest.approx((np.abs(error) > 4).mean())
    assert row["train_bias"] == pytest.approx(error.mean(), abs=1e-4)
    expected = [(rmse**2 - 16) / 8, np.abs(error).mean() - 3, (np.abs(error) > 4).mean() - 0.2]
    np.testing.assert_allclose(row["constraints"][:3], expected, rtol=1e-4)
    np.testing.assert_allclose(
        row["constraints"][3:], [error.mean() - 0.5, -error.mean() - 0.5], atol=1e-4
    )
    if loss == "poisson":
        assert row["train_deviance"] == pytest.approx(mean_poisson_deviance(true, found), rel=1e-4)
    if loss == "quantile":
        pin = mean_pinball_loss(true, found, alpha=0.8)
        assert row["train_pinball"] == pytest.approx(pin, rel=1e-5)
        assert row["train_below"] == pytest.approx((true <= found).mean())


def test_a_linear_model_with_a_limited_group_matches_slsqp() -> None:
    """Diabetes, RMSE of women at most 54.6: the objective is within 1 % of that of SLSQP."""
    with jax.enable_x64(True):
        dataset = load("diabetes", kind="number", keep=["sex"])
        clients = fedssca.by_sample(dataset.train, 5, seed=0)
        sex, total = clients.beside()["sex"], clients.total
        l2, limit = 1 / (2 * total), 54.6
        first = sorted(set(sex.tolist()))[0]
        limits = rmse_at_most(limit, Groups({"sex": sex}))
        assert dataset.target is not None
        model = linear(10, 1, dtype="float64")
        problem = classifier(model, limits, l2=l2, task=regression("squared", dataset.target))
        algorithm = auto(problem, clients, batch=16, rounds=150)
        result = simulate(problem, clients, algorithm, 150, 0, evaluate_every=75)
    x = np.c_[np.ones(total), dataset.train["x"].astype(float)]
    y, own = dataset.train["y"].astype(float), dataset.train["sex"] == first
    unit = dataset.target.scale

    def objective(w: np.ndarray) -> float:
        return float(np.mean((x @ w - y) ** 2) / 2 + l2 * w @ w)

    def room(w: np.ndarray) -> float:
        return float(limit - unit * np.sqrt(np.mean((x[own] @ w - y[own]) ** 2)))

    best = minimize(objective, np.zeros(11), constraints={"type": "ineq", "fun": room}, tol=1e-10)
    assert room(best.x) < 1e-3  # the limit matters
    assert result.feasible
    assert result.final["objective"] <= best.fun * 1.01


def test_one_line_says_what_is_wrong_with_a_target() -> None:
    with pytest.raises(UserError, match="text or no column of numbers"):
        target_numbers("t", np.array(["a", "b"]), "number")
    with pytest.raises(UserError, match=r"-1 in row 2.*counts"):
        target_numbers("t", np.array([0.0, -1.0]), "count")
    with pytest.raises(UserError, match="missing in row 1"):
        target_numbers("t", np.array([np.nan, 1.0]), "number")
    with pytest.raises(UserError, match="3 in all training rows"):
        target_scale("t", (4.0, 3.0, 0.0), "number")
    with pytest.raises(UserError, match="no training row"):
        target_scale("t", None, "number")
    assert np.bincount(as_strata(np.arange(100.0))).tolist() == [10] * 10


def test_a_task_refuses_scores_and_limits_of_another() -> None:
    batch = {"x": jnp.ones((2, 5)), "y": jnp.zeros(2)}
    two = classifier(linear(5, 3), task=regression())
    with pytest.raises(UserError, match="3 scores per row: a regression needs one"):
        two.measure(two.start, batch)
    wrong = classifier(linear(5, 1), error_at_most(0.1), task=regression())
    with pytest.raises(UserError, match="limit mae, rmse or beyond"):
        wrong.terms(wrong.start, batch)
    numbers = classifier(linear(5, 3), mae_at_most(1.0))
    with pytest.raises(UserError, match="needs a regression"):
        numbers.terms(numbers.start, batch)
    for loss, match in (("cubic", "unknown"), ("huber", "positive"), ("quantile", "between")):
        with pytest.raises(UserError, match=match):
            regression(loss, width=0.0, quantile_level=1.0)  # type: ignore[arg-type]
    limited = classifier(linear(5, 1), loss_at_most(0.1), task=regression())
    assert float(limited.terms(limited.start, batch).mean()) == 0.0
