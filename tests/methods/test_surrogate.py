"""Surrogates against the terms they stand for, with values and slopes worked out in numpy."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from fedssca.data.split import Rows
from fedssca.errors import UserError
from fedssca.methods.algorithm import Message
from fedssca.methods.curvature import diagonal
from fedssca.methods.schedule import Schedule
from fedssca.methods.ssca import ssca
from fedssca.methods.surrogate import Surrogate, first_order, gradients
from fedssca.problem import models
from fedssca.problem.constraints import loss_at_most
from fedssca.problem.custom import custom_problem
from fedssca.rounds.fused import Fused

pytestmark = pytest.mark.usefixtures("float64")

D, N, TAU, DAMPING = 4, 9, 0.3, 0.7
# Four means, one of them in the objective only; a gap from both sides shares its mean.
COMBINE = np.array([[1.0, 0, 0, 0.5], [0, 1, 0, 0], [0, -1, 0, 0], [0, 0.5, -2, 0]])
KNOWN, LIMITS = np.array([0.2, 0.0, 0.1, 0.05]), np.array([0.1, 0.4, -0.3])
RNG = np.random.default_rng(3)
BATCH = {"x": RNG.normal(size=(N, D)), "y": RNG.normal(size=N), "weight": RNG.uniform(0.05, 0.2, N)}
FAMILIES = ["paper", "exact", "diagonal"]
points = st.lists(st.floats(-2, 2), min_size=D, max_size=D).map(np.array)
examples = settings(max_examples=25, deadline=None)


def terms(w, batch):
    z = batch["x"] @ w
    return jnp.stack([jnp.square(z - batch["y"]), jnp.sin(z), jnp.logaddexp(0, z), jnp.cos(2 * z)])


def sampled(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The four terms (4, N) and their gradients (4, N, D), by hand."""
    x, y = BATCH["x"], BATCH["y"]
    z = x @ w
    values = np.array([(z - y) ** 2, np.sin(z), np.log1p(np.exp(z)), np.cos(2 * z)])
    slopes = np.array([2 * (z - y), np.cos(z), 1 / (1 + np.exp(-z)), -2 * np.sin(2 * z)])
    return values, slopes[:, :, None] * x


def true(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F_0..F_M over the weighted batch, and their gradients."""
    values, slopes = sampled(w)
    means, rows = values @ BATCH["weight"], np.einsum("knd,n->kd", slopes, BATCH["weight"])
    value = COMBINE @ means + KNOWN * (w @ w) - np.concatenate([[0], LIMITS])
    return value, COMBINE @ rows + 2 * KNOWN[:, None] * w


@cache
def family(name: str) -> tuple[Surrogate, Callable, Callable]:
    """The surrogate, the statistic at a point, and its functions' values there and gradients."""
    p = custom_problem(terms, jnp.zeros(D), limits=LIMITS, combine=COMBINE, known=KNOWN)
    s = {
        "paper": partial(first_order, p, TAU),
        "exact": partial(first_order, p, TAU, exact=True),
        "diagonal": partial(diagonal, p, TAU, damping=DAMPING, chunk=4),
    }[name]()
    statistic = jax.jit(lambda w: s.recentre(w, s.message(terms, w, BATCH)))
    look = jax.jit(lambda q, w: (s.function(q)(w), jax.jacrev(s.function(q))(w)))
    return s, statistic, look


def close(left, right) -> None:
    np.testing.assert_allclose(left, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
@examples
@given(w=points)
def test_it_touches_the_sampled_function_at_the_point(name: str, w: np.ndarray) -> None:
    _, statistic, look = family(name)
    value, slope = look(statistic(w), w)
    expected, expected_slope = true(w)
    close(value[1:], expected[1:])  # the objective's value is not sent: it moves no minimiser
    close(slope, expected_slope)


@pytest.mark.parametrize("name", FAMILIES)
@examples
@given(w=points, u=points)
def test_its_value_anywhere_is_the_formula(name: str, w: np.ndarray, u: np.ndarray) -> None:
    _, statistic, look = family(name)
    q = statistic(w)
    at_w, slope = true(w)
    bend = np.full((len(COMBINE), D), TAU)
    if name == "diagonal":
        squares = np.einsum("knd,n->kd", sampled(w)[1] ** 2, BATCH["weight"])
        bend = bend + DAMPING / 2 * np.abs(COMBINE) @ squares
    if name != "paper":  # |u|^2 kept exact = its linearisation + |u - w|^2
        bend = bend + KNOWN[:, None]
    expected = at_w + slope @ (u - w) + bend @ (u - w) ** 2
    close(look(q, u)[0][1:], expected[1:])
    close((look(q, u)[0] - look(q, w)[0])[0], (expected - at_w)[0])


@pytest.mark.parametrize("name", FAMILIES)
@examples
@given(w=points, u=points, v=points)
def test_it_is_strongly_convex(name: str, w: np.ndarray, u: np.ndarray, v: np.ndarray) -> None:
    _, statistic, look = family(name)
    f = lambda point: np.asarray(look(statistic(w), point)[0])  # noqa: E731
    gap = (f(u) + f(v)) / 2 - f((u + v) / 2)
    assert (gap >= TAU / 4 * np.sum((u - v) ** 2) - 1e-9).all()


@pytest.mark.parametrize("name", FAMILIES)
@examples
@given(one=points, two=points, u=points, share=st.floats(0, 1))
def test_mixing_statistics_mixes_functions(name, one, two, u, share: float) -> None:
    _, statistic, look = family(name)
    mix = lambda a, b: jax.tree.map(lambda s, t: (1 - share) * s + share * t, a, b)  # noqa: E731
    q, r = statistic(one), statistic(two)
    close(look(mix(q, r), u)[0], mix(look(q, u)[0], look(r, u)[0]))
    close(look(mix(q, r), u)[1], mix(look(q, u)[1], look(r, u)[1]))


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_messages_of_parts_add_up_to_the_message_of_the_whole(name: str) -> None:
    s, w = family(name)[0], jnp.asarray(RNG.normal(size=D))
    parts = [{k: v[cut] for k, v in BATCH.items()} for cut in (slice(0, 4), slice(4, None))]
    total = jax.tree.map(jnp.add, *(s.message(terms, w, part) for part in parts))
    jax.tree.map(close, total, s.message(terms, w, BATCH))


@pytest.mark.parametrize("name", FAMILIES)
def test_values_are_sent_only_for_terms_that_a_constraint_uses(name: str) -> None:
    w = RNG.normal(size=D)
    message = family(name)[0].message(terms, jnp.asarray(w), BATCH)
    close(message.scalars, (sampled(w)[0] @ BATCH["weight"])[[1, 2]])
    assert message.vectors["gradient"].shape == (4, D)


def test_no_values_are_sent_without_constraints() -> None:
    p = custom_problem(lambda w, batch: terms(w, batch)[:1], jnp.zeros(D))
    message = first_order(p, 1.0).message(p.terms, p.start, BATCH)
    assert message.scalars.shape == (0,)


def test_a_known_objective_is_kept_exact_and_nothing_is_sent_for_it() -> None:
    p = custom_problem(
        lambda w, batch: terms(w, batch)[:1],
        jnp.zeros(D),
        limits=[0.5],
        combine=[[0], [1]],
        known=1.0,
    )
    s, w = first_order(p, TAU), jnp.asarray(RNG.normal(size=D))
    message = s.message(p.terms, w, BATCH)
    assert message.vectors["gradient"].shape == (1, D)
    f = s.function(s.recentre(w, message))
    u = RNG.normal(size=D)
    close(f(u)[0], u @ u)
    at_w = sampled(np.asarray(w))
    mean, slope = at_w[0][0] @ BATCH["weight"], BATCH["weight"] @ at_w[1][0]
    close(f(u)[1], mean + slope @ (u - w) + TAU * np.sum((u - w) ** 2) - 0.5)


def test_gradients_of_the_network_against_finite_differences(columns, by_hand) -> None:
    p = models.classifier(models.mlp(7, 5, 3, dtype="float64"), loss_at_most(0.5), objective="norm")
    batch = {**columns, "weight": np.full(60, 1 / 60)}
    w, h = np.asarray(p.start), 1e-6
    message = gradients(p, p.terms, p.start, batch)
    loss = lambda w: by_hand(w, columns["x"], columns["y"])[0].mean()  # noqa: E731
    steps = h * np.eye(len(w))
    numeric = np.array([(loss(w + step) - loss(w - step)) / (2 * h) for step in steps])
    close(message.scalars, [loss(w)])
    np.testing.assert_allclose(message.vectors["gradient"][0], numeric, atol=1e-9)


@pytest.mark.parametrize("make", [first_order, diagonal])
@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan")])
def test_tau_must_be_positive(make, tau: float) -> None:
    p = custom_problem(lambda w, batch: terms(w, batch)[:1], jnp.zeros(D))
    with pytest.raises(UserError, match="tau = "):
        make(p, tau)


# The page docs/own-surrogate.md ------------------------------------------------------------------


@cache
def own() -> Callable[..., Surrogate]:
    page = (Path(__file__).parents[2] / "docs" / "own-surrogate.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(code.splitlines()) < 30
    names: dict = {}
    exec(code, names)
    return names["proximal"]


def test_the_surrogate_of_the_docs_with_equal_weights_is_the_exact_one() -> None:
    p = custom_problem(terms, jnp.zeros(D), limits=LIMITS, combine=COMBINE, known=KNOWN)
    mine, library = own()(p, jnp.full(D, TAU)), family("exact")[0]
    w, u = jnp.asarray(RNG.normal(size=D)), jnp.asarray(RNG.normal(size=D))
    message: Message = mine.message(terms, w, BATCH)
    left, right = (s.function(s.recentre(w, message)) for s in (mine, library))
    close(left(u)[1:], right(u)[1:])
    close(jax.jacrev(left)(u), jax.jacrev(right)(u))


@pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
def test_the_surrogate_of_the_docs_trains_to_the_solution() -> None:
    """Least squares in a ball, full batches: the answer is on the ridge path."""
    x, y = RNG.normal(size=(40, D)), RNG.normal(size=40)
    p = custom_problem(
        lambda w, batch: jnp.square(batch["x"] @ w - batch["y"])[None],
        jnp.full(D, 0.5),
        limits=[0.02],
        combine=[[1], [0]],
        known=[0.0, 1.0],
    )
    ridge = lambda nu: np.linalg.solve(x.T @ x / 40 + nu * np.eye(D), x.T @ y / 40)  # noqa: E731
    nu = brentq(lambda nu: ridge(nu) @ ridge(nu) - 0.02, 0, 100, xtol=1e-14)
    tau = jnp.array([1.0, 2.0, 3.0, 1.5])
    steady = Schedule(0.9)
    method = ssca(p, batch=40, rho=steady, gamma=steady, surrogate=own()(p, tau))
    runtime = Fused(p, Rows({"x": x, "y": y}, (40,)), method, seed=0)
    end = runtime.advance(method.init(p.start), 300)
    np.testing.assert_allclose(end.w, ridge(nu), atol=1e-8)
    np.testing.assert_allclose(end.multipliers, [nu], rtol=1e-6)
