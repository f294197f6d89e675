"""Clipped sums without single gradients, against gradients of single samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.privacy.noise.ghost import places, tapped
from fedssca.problem.models import classifier, cnn, linear, mlp
from fedssca.problem.problem import Array, Batch, Problem

pytestmark = pytest.mark.usefixtures("float64")
ROWS, WIDE = 7, 1e9
KIND: dict[str, Any] = {"dtype": "float64"}


def attention(params: Any, x: Array) -> Array:
    """A matrix product with several rows per sample, a repeated bias, and weights under a root."""
    tokens = x.reshape(len(x), 8, 2) @ params["embed"]
    scores = jnp.tanh(tokens + jnp.broadcast_to(params["b"], tokens.shape)).mean(1)
    return scores @ params["out"] * jnp.square(params["scale"])


def own(apply: Callable[..., Array], **shapes: tuple[int, ...]) -> Problem:
    draw = np.random.default_rng(1).normal
    return fedssca.from_scores(apply, {name: draw(size=shape) for name, shape in shapes.items()})


MODELS: dict[str, Callable[[], Problem]] = {
    "paper": lambda: classifier(mlp(16, 5, 3, **KIND)),
    "deep": lambda: classifier(mlp(16, [6, 4], 3, layer_norm=True, **KIND)),
    "linear": lambda: classifier(linear(16, 2, **KIND)),
    "cnn": lambda: classifier(cnn((4, 4), 3, (2, 3), (90,), "tanh", **KIND)),
    "own": lambda: own(attention, embed=(2, 90), b=(90,), out=(90, 40), scale=(40,)),
}
USES: dict[str, Callable[..., Array]] = {
    "twice": lambda p, x: jnp.tanh(x @ p["w"]) @ p["w"].T @ p["w"],
    "in a loop": lambda p, x: jax.lax.fori_loop(0, 2, lambda _, z: z @ p["w"] @ p["w"].T, x)[:, :3],
}


def batch() -> Batch:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 16)), rng.integers(0, 2, ROWS).astype(np.int32)
    weight = np.append(rng.random(ROWS - 1), 0.0)
    return {"x": jnp.asarray(x), "y": jnp.asarray(y), "weight": jnp.asarray(weight)}


def first(rows: Batch) -> Batch:
    return jax.tree.map(lambda leaf: leaf[0], rows)


@pytest.mark.parametrize("name", MODELS)
def test_the_sum_of_clipped_gradients_is_that_of_single_samples(name: str) -> None:
    problem, rows = MODELS[name](), batch()
    w = problem.start + 0.3 * np.random.default_rng(2).normal(size=problem.dimension)

    def loss(point: Array, row: Batch) -> Array:
        return problem.terms(point, jax.tree.map(lambda leaf: leaf[None], row))[0, 0]

    each = jax.vmap(lambda row: jax.grad(loss)(w, row))(rows)
    lengths = np.linalg.norm(each, axis=1)
    clip = float(np.median(lengths))
    due = (rows["weight"] * np.minimum(1, clip / lengths)) @ each
    model = places(problem.terms, w, first(rows))
    assert model is not None
    terms = tapped(model, clip, WIDE)
    got = jax.jit(jax.grad(lambda point: (terms(point, rows) @ rows["weight"])[0]))(w)
    np.testing.assert_allclose(got, due, rtol=1e-10, atol=1e-12)


def test_values_are_clipped() -> None:
    problem, rows = MODELS["paper"](), batch()
    model = places(problem.terms, problem.start, first(rows))
    assert model is not None
    values = problem.terms(problem.start, rows)
    got = tapped(model, 1.0, 0.9)(problem.start, rows)
    np.testing.assert_allclose(got, np.clip(values, -0.9, 0.9), rtol=1e-12)


@pytest.mark.parametrize("use", USES)
def test_weights_that_are_used_otherwise_are_left_to_single_gradients(use: str) -> None:
    problem = own(USES[use], w=(16, 16))
    assert places(problem.terms, problem.start, first(batch())) is None
