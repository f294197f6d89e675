"""Multipliers: steered by what is measured, or the paper's exact penalty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.methods import multipliers as dual
from fedssca.methods.curvature import diagonal
from fedssca.methods.multipliers import Dual, RoundProblem, exact_penalty, steered
from fedssca.methods.solver import Quadratic, lemma1, solve
from fedssca.methods.surrogate import first_order
from fedssca.problem.constraints import loss_at_most
from fedssca.problem.custom import custom_problem, vertical_problem
from fedssca.problem.models import classifier, mlp
from fedssca.problem.problem import Problem
from fedssca.run.build.calibrate import auto
from fedssca.run.simulate import simulate

pytestmark = pytest.mark.usefixtures("float64")

D = 4


def problem(*limits: float) -> Problem:
    """As many limits as asked for; what its terms are plays no part."""
    return custom_problem(
        lambda w, batch: jnp.zeros((len(limits) + 1, len(batch["x"]))), jnp.ones(D), limits=limits
    )


def surrogates(count: int, seed: int = 0) -> Quadratic:
    """An objective and `count` constraints with curvatures of their own."""
    rng = np.random.default_rng(seed)
    parts = (
        rng.normal(size=count + 1),
        rng.normal(size=(count + 1, D)),
        rng.uniform(1, 2, count + 1),
    )
    return Quadratic(*map(jnp.asarray, parts))


def now(t: Any, measured: Any, norm_objective: bool = False) -> RoundProblem:
    values = jnp.asarray(measured, float)
    return RoundProblem(
        jnp.asarray(t, jnp.int32), jnp.ones(D), surrogates(values.size), values, norm_objective
    )


def course(rule: Dual, rounds: int, *curves: Callable[[float], float]) -> np.ndarray:
    """The multipliers of rounds 1..rounds - 1 when constraint m measures curves[m](t)."""

    def step(memory: Any, seen: tuple[Any, Any]) -> tuple[Any, Any]:
        memory, best = rule.step(memory, now(*seen))
        return memory, best.multipliers

    times = np.arange(1, rounds)
    values = np.array([[curve(t) for curve in curves] for t in times])
    return np.asarray(jax.lax.scan(step, rule.init(jnp.ones(D)), (times, values))[1])


# Steered -----------------------------------------------------------------------------------------


def heading(end: float, rounds: int, fall: float = 0.2) -> Callable[[float], float]:
    """Falls steadily in log t, from above its limit, to `end` at the last round."""
    return lambda t: end + fall * np.log(rounds / t)


def test_where_a_constraint_is_heading_decides() -> None:
    """Both are broken at first, and broken at half time: what differs is where they will end."""
    rounds = 200
    over, under = heading(0.3, rounds), heading(-0.1, rounds)
    assert over(rounds / 2) > 0
    assert under(rounds / 2) > 0
    nu = course(steered(problem(1.0, 1.0), rounds), rounds, over, under)
    late = np.diff(np.log(nu[rounds // 4 :]), axis=0)
    assert (late[:, 0] > 0).all()
    assert (late[:, 1] < 0).all()


def test_a_kept_limit_without_a_trend_gets_cheaper_and_a_broken_one_dearer() -> None:
    nu = course(steered(problem(1.0, 1.0), 100), 100, lambda t: 0.5, lambda t: -0.5)
    assert (np.diff(nu, axis=0) * [1, -1] > 0).all()


def test_one_per_cent_of_the_limit_is_kept_in_reserve() -> None:
    nu = course(steered(problem(1.0, 1.0), 100), 100, lambda t: -0.005, lambda t: -0.015)
    assert (np.diff(nu, axis=0) * [1, -1] > 0).all()


def opening(first: RoundProblem) -> np.ndarray:
    """The first multipliers, of a run so long that one round moves nothing."""
    rule = steered(problem(*[1.0] * first.measured.size), 10**9)
    return np.asarray(rule.step(rule.init(first.w), first)[1].multipliers)


@pytest.mark.parametrize("norm", [False, True])
def test_the_first_multipliers_follow_the_gradients(norm: bool) -> None:
    """A broken limit opens higher than one that holds; scaling F_m scales its multiplier back."""
    q, before = surrogates(2), now(1, [0.1, -0.1], norm)
    lengths = np.linalg.norm(q.linear + 2 * q.curvature[:, None] * np.ones(D), axis=1)
    lead = opening(before) * lengths[1:] / lengths[0]
    assert lead[0] >= 1 >= lead[1] > 0
    wide = q._replace(curvature=q.curvature[:, None] * jnp.ones(D))  # one curvature a parameter
    steep = Quadratic(*(leaf.at[1].multiply(7.0) for leaf in q))
    for other, factor in ((wide, [1, 1]), (steep, [1 / 7, 1])):
        found = opening(before._replace(surrogates=other))
        np.testing.assert_allclose(found, opening(before) * factor, rtol=1e-6)


def test_a_gradient_of_zero_opens_with_a_finite_multiplier() -> None:
    flat = now(1, [0.1])
    flat = flat._replace(surrogates=jax.tree.map(jnp.zeros_like, flat.surrogates))
    assert np.isfinite(opening(flat)).all()


def test_the_penalty_is_the_most() -> None:
    nu = course(steered(problem(1.0), 100, penalty=5.0), 100, lambda t: 3.0)
    assert nu.max() == pytest.approx(5.0)
    assert (nu <= 5.0 * (1 + 1e-12)).all()


def test_a_longer_run_steers_as_far() -> None:
    """The same curve in t / T: nothing needs setting when the number of rounds changes."""
    ends = []
    for rounds in (200, 2000):
        share = [lambda t, T=rounds: 0.6 - t / T, lambda t, T=rounds: 0.2 * np.cos(5 * t / T)]
        nu = course(steered(problem(1.0, 1.0), rounds), rounds, *share)
        ends.append(np.log(nu[-1] / nu[0]))
    assert np.abs(ends[0]).min() > 0.5
    np.testing.assert_allclose(ends[0], ends[1], atol=0.25)


def test_the_step_is_the_minimiser_at_the_multipliers() -> None:
    rule = steered(problem(1.0, 1.0), 10)
    _, best = rule.step(rule.init(jnp.ones(D)), now(1, [0.3, -0.3]))
    weights, q = np.concatenate([[1.0], best.multipliers]), surrogates(2)
    np.testing.assert_allclose(best.w, -(weights @ q.linear) / (2 * weights @ q.curvature))
    np.testing.assert_allclose(best.slack, np.maximum(q(best.w)[1:], 0))


def test_without_constraints_there_is_nothing_to_steer() -> None:
    rule, q = steered(problem(), 10), surrogates(0)
    _, best = rule.step(rule.init(jnp.ones(D)), now(1, []))
    np.testing.assert_allclose(best.w, -q.linear[0] / (2 * q.curvature[0]))
    assert best.multipliers.shape == best.slack.shape == (0,)


# Against a convex solver -------------------------------------------------------------------------

N, P, ROUNDS = 240, 6, 1500
rng = np.random.default_rng(3)
X = rng.normal(size=(N, P)) / np.sqrt(P)
Y = X @ rng.normal(size=P) * 2 + 0.3 * rng.normal(size=N) + 0.2
START = rng.normal(size=P)
GROUP = (rng.random(N) < 0.4).astype(float)
DATA = {"x": X, "y": Y, "group": GROUP}
HALVES = (np.arange(3), np.arange(3, P))
LIMITS = {1: [0.3], 3: [0.3, 0.25, 0.05]}


def errors(score: Any, batch: Any, count: int) -> Any:
    """Squared error of all rows; of one group; the mean score."""
    square = jnp.square(score - batch["y"])
    share = GROUP.mean()
    return jnp.stack([square, square * batch["group"] / share, score])[:count]


def least_squares(count: int, columns: bool) -> Problem:
    """min |w|^2 s.t. limits on the errors: `count` of them."""
    settings: dict[str, Any] = {
        "combine": np.eye(count + 1)[:, 1:],
        "known": 1.0,
        "limits": LIMITS[count],
        "names": ["error", "group", "score"][:count],
    }
    if not columns:
        return custom_problem(
            lambda w, batch: errors(batch["x"] @ w, batch, count), jnp.asarray(START), **settings
        )
    return vertical_problem(
        [lambda w, x: (x @ w)[:, None]] * 2,
        lambda w0, hs, batch: errors(sum(hs)[:, 0] + 0 * w0[0], batch, count),
        [jnp.ones(1), jnp.asarray(START[:3]), jnp.asarray(START[3:])],
        HALVES,
        **settings,
    )


def optimum(count: int) -> float:
    w = cvxpy.Variable(P)
    square = cvxpy.square(X @ w - Y)
    values = [cvxpy.mean(square), GROUP @ square / GROUP.sum(), cvxpy.mean(X @ w)]
    limits = [f <= limit for f, limit in zip(values, LIMITS[count], strict=False)]
    task = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(w)), limits)
    task.solve(solver=cvxpy.CLARABEL)
    assert task.status == "optimal"
    return float(task.value)


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_a_convex_problem_is_solved_within_its_limits(count: int, columns: bool) -> None:
    p = least_squares(count, columns)
    clients = Columns(DATA, HALVES) if columns else Rows(DATA, (60, 100, 80))
    batch = 60 if columns else 20
    method = auto(p, clients, batch=batch, rounds=ROUNDS)
    found = simulate(p, clients, method, ROUNDS, evaluate_every=50)
    assert found.feasible
    assert found.notes == []
    w = found.w[-P:]
    square = np.square(X @ w - Y)
    values = [square.mean(), GROUP @ square / GROUP.sum(), (X @ w).mean()]
    assert all(f <= limit + 1e-12 for f, limit in zip(values, LIMITS[count], strict=False))
    assert found.final["objective"] == pytest.approx(found.w @ found.w)
    best = optimum(count)
    assert best > 0.1
    assert best * (1 - 1e-6) <= found.final["objective"] <= best * 1.02


# The paper's -------------------------------------------------------------------------------------


def split(q: Quadratic) -> tuple[Quadratic, Quadratic]:
    return Quadratic(*(leaf[0] for leaf in q)), Quadratic(*(leaf[1:] for leaf in q))


@pytest.mark.long
@pytest.mark.parametrize(("count", "norm"), [(1, False), (3, True)])
def test_exact_penalty_is_the_solver(
    monkeypatch: pytest.MonkeyPatch, count: int, norm: bool
) -> None:
    monkeypatch.setattr(dual, "lemma1", lambda *_: pytest.fail("Lemma 1 does not apply"))
    rule = exact_penalty(problem(*[1.0] * count), 20.0)
    _, best = rule.step(rule.init(jnp.ones(D)), now(1, [0.5] * count, norm))
    jax.tree.map(np.testing.assert_array_equal, best, solve(*split(surrogates(count)), 20.0))


def test_exact_penalty_is_lemma_1_for_the_norm_under_one_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dual, "solve", lambda *_: pytest.fail("Lemma 1 applies"))
    rule = exact_penalty(problem(1.0), 20.0)
    _, best = rule.step(rule.init(jnp.ones(D)), now(1, [0.5], norm_objective=True))
    constraint = split(surrogates(1))[1]
    jax.tree.map(np.testing.assert_array_equal, best, lemma1(constraint, 20.0))
    norm = Quadratic(jnp.zeros(()), jnp.zeros(D), jnp.ones(()))
    np.testing.assert_allclose(best.w, solve(norm, constraint, 20.0).w, atol=1e-9)


def test_which_surrogates_keep_the_norm_as_objective() -> None:
    model = mlp(5, 3, 2, dtype="float64")
    norm = classifier(model, loss_at_most(0.5), objective="norm")
    loss = classifier(model, loss_at_most(0.5), l2=1.0)
    half = custom_problem(
        lambda w, batch: w[0] * batch["x"].T, jnp.ones(1), combine=[[0], [1]], known=0.5, limits=[1]
    )
    assert first_order(norm, 0.1).norm_objective
    assert not first_order(loss, 0.1).norm_objective
    assert not first_order(half, 0.1).norm_objective
    assert not diagonal(norm, 0.1).norm_objective


@pytest.mark.parametrize("penalty", [0.0, -1.0, [1.0, 1.0], [3.0, 2.0]])
def test_a_bad_penalty_is_refused(penalty: Any) -> None:
    with pytest.raises(UserError, match="penalty = "):
        exact_penalty(problem(1.0), penalty)
