"""The constrained rivals, worked by hand in numpy, and against a problem with a known solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.sampling import batch_indices
from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, State
from fedssca.methods.rivals import augmented_lagrangian, primal_dual, quadratic_penalty, switching
from fedssca.methods.schedule import Schedule, power
from fedssca.problem.constraints import loss_at_most
from fedssca.problem.custom import custom_problem
from fedssca.problem.models import classifier, mlp
from fedssca.problem.problem import Problem
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local

pytestmark = pytest.mark.usefixtures("float64")

SEED, SIZES, B, BETA = 8, (20, 40), 8, 0.5
RATE, DUAL = power(0.2, 0.5), power(3.0, 0.5, most=10)
COMBINE = np.array([[1.0, 0.0], [0.5, 1.0], [0.0, -1.0]])
KNOWN, LIMITS = np.array([0.1, 0.2, 0.0]), np.array([6.0, 0.0])


def mixed() -> Problem:
    """Two means make up an objective and two constraints, with known terms in two of the three."""

    def terms(w, batch):
        score = batch["x"] @ w
        return jnp.stack([jnp.square(score - batch["y"]), score])

    begin = jnp.asarray(np.random.default_rng(3).normal(size=7))
    return custom_problem(terms, begin, combine=COMBINE, known=list(KNOWN), limits=LIMITS)


def shares(nu: np.ndarray) -> np.ndarray:
    return np.concatenate([[1.0], nu]) / (1 + nu.sum())


def penalty_by_hand(nu, f, slopes, t):
    nu = 2 * 4.0 * np.maximum(f, 0)
    return shares(nu), nu


def primal_dual_by_hand(nu, f, slopes, t):
    return shares(nu), np.maximum(nu + 3 / np.sqrt(t) * f, 0)


def augmented_by_hand(nu, f, slopes, t):
    return shares(np.maximum(nu + 4 * f, 0)), np.maximum(nu + 3 / np.sqrt(t) * f, 0)


def switching_by_hand(nu, f, slopes, t):
    k = 0 if f.max() <= 0.2 else 1 + int(f.argmax())
    return np.eye(3)[k] / np.linalg.norm(slopes[k]), nu


HAND: dict[str, tuple[Callable[[Problem], Algorithm], Callable, float]] = {
    "quadratic_penalty": (
        lambda p: quadratic_penalty(p, batch=B, rate=RATE, penalty=4.0, momentum=BETA),
        penalty_by_hand,
        0.0,
    ),
    "primal_dual": (
        lambda p: primal_dual(p, batch=B, rate=RATE, dual_rate=DUAL, momentum=BETA, initial=0.7),
        primal_dual_by_hand,
        0.7,
    ),
    "augmented_lagrangian": (
        lambda p: augmented_lagrangian(
            p, batch=B, rate=RATE, dual_rate=DUAL, penalty=4.0, momentum=BETA
        ),
        augmented_by_hand,
        0.0,
    ),
    "switching": (
        lambda p: switching(p, batch=B, rate=RATE, tolerance=0.2, momentum=BETA),
        switching_by_hand,
        0.0,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HAND)
def test_rounds_by_hand(columns, name: str) -> None:
    make, weigh, initial = HAND[name]
    p = mixed()
    method, clients = make(p), Rows(columns, SIZES)
    runtime, state = Fused(p, clients, method, SEED), method.init(p.start)
    assert method.name == name
    np.testing.assert_array_equal(state.multipliers, [initial, initial])

    draw = jax.jit(lambda t: batch_indices(SEED, t, np.arange(2), np.array(SIZES), B, 1))
    share = np.repeat(np.array(SIZES) / (B * sum(SIZES)), B)
    w, v, nu = np.asarray(p.start), np.zeros(7), np.full(2, initial)
    given = np.zeros(3)
    for t in range(1, 13):
        rows = (np.asarray(draw(t)) + np.array([[0], [20]])).ravel()
        x, y = columns["x"][rows], columns["y"][rows]
        error = x @ w - y
        means = share @ np.stack([error**2, x @ w], axis=1)
        slopes = COMBINE @ np.stack([share @ (2 * error[:, None] * x), share @ x])
        slopes += 2 * KNOWN[:, None] * w
        f = (COMBINE @ means + KNOWN * (w @ w))[1:] - LIMITS
        a, nu = weigh(nu, f, slopes, t)
        given += 0.2 / np.sqrt(t) * a
        if name == "switching":
            nu = given[1:] / given[0] if given[0] else np.zeros(2)
        v = BETA * v + a @ slopes
        w = w - 0.2 / np.sqrt(t) * v
        state = runtime.advance(state, t)
        np.testing.assert_allclose(state.w, w, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.slack, np.maximum(f, 0), rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.multipliers, nu, rtol=1e-11, atol=1e-12)
    assert (given > 0).all()  # every F_m had its turn


TARGET, SOLUTION, NU = np.array([2.0, 1.0, 0.0]), np.array([0.6, 0.8, 0.0]), np.array([0.25, 2.5])


def disc() -> tuple[Problem, Rows]:
    """min mean |w - x|^2 s.t. |w|^2 <= 1, mean s w_1 <= 0.6, w_2 <= 5; mean x = TARGET, mean s = 1.

    KKT: 2 (w - TARGET) + 2 nu_1 w + nu_2 e_1 = 0 at w = (0.6, 0.8, 0) with nu = (1/4, 5/2, 0).
    """
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, 4)) * 0.3
    x += np.append(TARGET, 1.0) - x.mean(axis=0)

    def terms(w, batch):
        gap = jnp.square(w - batch["x"][:, :3]).sum(axis=1)
        return jnp.stack([gap, batch["x"][:, 3] * w[0], w[1] * jnp.ones_like(gap)])

    combine = np.array([[1.0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]])
    p = custom_problem(
        terms, jnp.zeros(3), combine=combine, known=[0.0, 1.0], limits=[1.0, 0.6, 5.0]
    )
    return p, Rows({"x": x}, (20, 20))


def end(method: Algorithm, p: Problem, clients: Rows, rounds: int) -> State:
    return Fused(p, clients, method, SEED).advance(method.init(p.start), rounds)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "settings", "error", "doubt"),
    [
        (quadratic_penalty, {"rate": Schedule(0.005), "penalty": 100.0}, 0.02, 0.1),
        (primal_dual, {"rate": Schedule(0.1), "dual_rate": Schedule(0.05)}, 1e-6, 1e-5),
        (
            augmented_lagrangian,
            {"rate": Schedule(0.1), "dual_rate": Schedule(0.3), "penalty": 5.0},
            1e-6,
            1e-5,
        ),
        (switching, {"rate": Schedule(0.05, cool=1.0, horizon=3000)}, 3e-3, 0.4),
        (primal_dual, {"rate": power(0.1), "dual_rate": power(0.05), "momentum": 0.8}, 1e-6, 1e-5),
    ],
)
def test_the_solution_is_found(method, settings, error: float, doubt: float) -> None:
    p, clients = disc()
    state = end(method(p, batch=20, **settings), p, clients, 2999)
    np.testing.assert_allclose(state.w, SOLUTION, rtol=0, atol=error)
    np.testing.assert_allclose(state.multipliers, [*NU, 0], rtol=0, atol=doubt)


def test_a_penalty_ends_where_its_weight_says() -> None:
    """F_m = nu_m / (2 c): the fault of the quadratic penalty, and the augmented one's repair."""
    p, clients = disc()
    state = end(quadratic_penalty(p, batch=20, rate=Schedule(0.05), penalty=20.0), p, clients, 3000)
    np.testing.assert_allclose(state.slack, np.asarray(state.multipliers) / 40, rtol=1e-9)
    assert float(state.slack[1]) > 0.04


def test_mini_batches_of_noise_still_lead_there() -> None:
    p, clients = disc()
    method = primal_dual(
        p,
        batch=4,
        rate=Schedule(0.1, cool=0.8, horizon=3000),
        dual_rate=Schedule(0.05, cool=0.8, horizon=3000),
    )
    np.testing.assert_allclose(end(method, p, clients, 2999).w, SOLUTION, rtol=0, atol=0.02)


@pytest.mark.long
def test_parties_with_columns_do_what_one_machine_does(columns) -> None:
    blocks = (np.array([0, 2, 3, 6]), np.array([1, 4, 5]))
    p = classifier(
        mlp(7, 5, 3, dtype="float64"), loss_at_most(0.8), objective="norm", features=blocks
    )
    alone = replace(p, vertical=None)
    method = augmented_lagrangian(
        p, batch=11, rate=RATE, dual_rate=DUAL, penalty=10.0, momentum=BETA
    )
    begin = method.init(p.start)
    split = Local(p, Columns(columns, blocks), method, SEED).advance(begin, 8)
    whole = Fused(alone, Rows(columns, (60,)), method, SEED).advance(begin, 8)
    assert np.linalg.norm(whole.w - p.start) > 0.05 * np.linalg.norm(p.start)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), split, whole)


@pytest.mark.parametrize(
    ("method", "settings", "text"),
    [
        (quadratic_penalty, {"penalty": -1.0}, r"penalty = -1\.0"),
        (quadratic_penalty, {"penalty": 1.0, "momentum": 1.0}, r"momentum = 1\.0"),
        (augmented_lagrangian, {"penalty": 0.0, "dual_rate": DUAL}, r"penalty = 0\.0"),
        (augmented_lagrangian, {"penalty": float("nan"), "dual_rate": DUAL}, "penalty = nan"),
        (primal_dual, {"dual_rate": DUAL, "momentum": -0.1}, r"momentum = -0\.1"),
        (primal_dual, {"dual_rate": DUAL, "initial": -2.0}, r"initial = -2\.0"),
        (primal_dual, {"dual_rate": Schedule(0.0)}, r"dual_rate\.a = 0\.0"),
        (switching, {"tolerance": float("nan")}, "tolerance = nan"),
        (switching, {"rate": Schedule(-1.0)}, r"rate\.a = -1\.0"),
    ],
)
def test_bad_settings_are_refused(method, settings, text: str) -> None:
    with pytest.raises(UserError, match=text):
        method(mixed(), batch=B, **{"rate": RATE, **settings})


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (quadratic_penalty, {"penalty": 1.0}),
        (primal_dual, {"dual_rate": DUAL}),
        (augmented_lagrangian, {"penalty": 1.0, "dual_rate": DUAL}),
        (switching, {}),
    ],
)
def test_without_constraints_there_is_sgd(method, settings) -> None:
    with pytest.raises(UserError, match="use algorithm 'sgd'"):
        method(classifier(mlp(7, 5, 3)), batch=B, rate=RATE, **settings)
