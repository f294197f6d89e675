"""`vertical`: parties with first parts of any form, against the joined function and by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.problem.custom import vertical_problem
from fedssca.problem.models import classifier, linear, mlp
from fedssca.problem.problem import Problem

pytestmark = pytest.mark.usefixtures("float64")

FEATURES = [np.array([4, 0]), np.array([1, 3, 5]), np.array([2])]
rng = np.random.default_rng(0)
BATCH = {"x": rng.normal(size=(8, 6)), "y": rng.normal(size=8)}
# w_0 is a dict, party 0 an affine map to 2, party 1 a tuple for a network to 3, party 2 one number.
PARAMS = [
    {"v": rng.normal(size=6), "bias": rng.normal()},
    {"a": rng.normal(size=(2, 2)), "b": rng.normal(size=2)},
    (rng.normal(size=(4, 3)), rng.normal(size=(3, 4))),
    rng.normal(),
]


def locals_of(np_: type) -> list:
    return [
        lambda w, x: x @ w["a"].T + w["b"],
        lambda w, x: np_.tanh(x @ w[0].T) @ w[1].T,
        lambda w, x: np_.sin(w * x),
    ]


def head(w, hs, batch):
    z = jnp.concatenate(hs, axis=1) @ w["v"] + w["bias"]
    return jnp.stack([jnp.square(z - batch["y"]), jnp.cos(z) * hs[2][:, 0]])


def by_hand(params) -> np.ndarray:
    x, y = BATCH["x"], BATCH["y"]
    hs = [h(w, x[:, own]) for h, w, own in zip(locals_of(np), params[1:], FEATURES, strict=True)]
    z = np.concatenate(hs, axis=1) @ params[0]["v"] + params[0]["bias"]
    return np.array([(z - y) ** 2, np.cos(z) * hs[2][:, 0]])


@pytest.fixture
def joint() -> Problem:
    params = jax.tree.map(jnp.asarray, PARAMS)
    return vertical_problem(locals_of(jnp), head, params, FEATURES, limits=[0.3], names=["second"])


def apart(p: Problem, w) -> jax.Array:
    """The terms as the parties compute them: own columns, own block, then the head."""
    split = p.vertical
    hs = [
        h(w[block], BATCH["x"][:, own])
        for h, block, own in zip(split.locals, split.blocks[1:], split.features, strict=True)
    ]
    return split.head(w[split.blocks[0]], hs, BATCH)


def test_the_joined_terms_are_those_by_hand(joint: Problem) -> None:
    np.testing.assert_allclose(joint.terms(joint.start, BATCH), by_hand(PARAMS), rtol=1e-12)
    assert joint.names == ("second",)
    assert joint.dimension == 7 + 6 + 24 + 1


def test_blocks_partition_the_parameters(joint: Problem) -> None:
    assert [len(block) for block in joint.vertical.blocks] == [7, 6, 24, 1]
    assert np.array_equal(np.sort(np.concatenate(joint.vertical.blocks)), np.arange(38))
    assert not joint.vertical.linear


@pytest.mark.long
def test_head_and_locals_are_the_joined_terms(joint: Problem) -> None:
    for w in (joint.start, joint.start + 0.1 * np.arange(38)):
        np.testing.assert_allclose(apart(joint, w), joint.terms(w, BATCH), rtol=1e-12)
        left = jax.jacrev(lambda w: apart(joint, w))(w)
        right = jax.jacrev(joint.terms)(w, BATCH)
        np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-12)


def test_gradients_against_finite_differences(joint: Problem) -> None:
    w, h = np.asarray(joint.start), 1e-6
    means = lambda w: by_hand(joint.unravel(jnp.asarray(w))).mean(axis=1)  # noqa: E731
    steps = h * np.eye(38)
    numeric = np.stack([(means(w + s) - means(w - s)) / (2 * h) for s in steps], axis=1)
    found = jax.jacrev(lambda w: joint.terms(w, BATCH).mean(axis=1))(joint.start)
    np.testing.assert_allclose(found, numeric, atol=1e-8)


@pytest.mark.parametrize(
    "model", [mlp(6, 4, 3, "tanh", scale=0.5, dtype="float64"), linear(6, 2, scale=0.5)]
)
def test_ready_made_networks_keep_their_layout(model) -> None:
    whole, split = classifier(model), classifier(model, features=FEATURES)
    w = jnp.asarray(rng.normal(size=whole.dimension))
    batch = {"x": BATCH["x"], "y": np.arange(8) % 2}
    form = split.vertical
    hs = [
        h(w[block], batch["x"][:, own])
        for h, block, own in zip(form.locals, form.blocks[1:], form.features, strict=True)
    ]
    terms = form.head(w[form.blocks[0]], hs, batch)
    np.testing.assert_allclose(terms, whole.terms(w, batch), rtol=1e-11)
    assert np.array_equal(np.sort(np.concatenate(form.blocks)), np.arange(whole.dimension))
    assert form.linear
