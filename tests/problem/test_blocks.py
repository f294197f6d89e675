"""Convolutions in blocks, with activation and pooling, against the layers one after the other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.problem.blocks import FEW, largest, suits_blocks
from fedssca.problem.layers import Activation, Convolution, Pool, apply_stack

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize(
    ("inputs", "kernel", "activation", "kind", "biases", "sides"),
    [
        (1, 3, "relu", "max", True, (8, 6)),
        (2, 3, "swish", "max", False, (7, 8)),
        (2, 4, "tanh", "mean", True, (6, 9)),
        (3, 5, "relu", "mean", True, (7, 7)),
        (FEW + 1, 3, "relu", "max", True, (5, 4)),
    ],
)
def test_layers_in_blocks_have_the_values_and_gradients_of_single_layers(
    inputs: int, kernel: int, activation: str, kind: str, biases: bool, sides: tuple[int, int]
) -> None:
    layers = (
        Convolution(inputs, inputs + 1, kernel, biases),
        Activation(activation),
        Pool(2, kind),
    )
    draw = np.random.default_rng(0).standard_normal
    values = [tuple(part + 0.1 for part in layer.draw(draw)) for layer in layers]
    image = draw((3, *sides, inputs))

    def together(values: Any, z: Any) -> Any:
        return jnp.sin(apply_stack(layers, values, z)).sum()

    def one_by_one(values: Any, z: Any) -> Any:
        for layer, own in zip(layers, values, strict=True):
            z = layer.apply(own, z)
        return jnp.sin(z).sum()

    assert suits_blocks(inputs, inputs + 1, kernel, 2) == (inputs <= FEW)
    due, got = (
        jax.jit(jax.value_and_grad(loss, (0, 1)))(values, jnp.asarray(image))
        for loss in (one_by_one, together)
    )
    for a, b in zip(jax.tree.leaves(due), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_the_largest_of_equal_places_share_the_gradient() -> None:
    blocks = jnp.asarray([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])[..., None]
    slopes = jax.grad(lambda z: (largest(z)[:, 0] * jnp.asarray([1.0, 8.0])).sum())(blocks)
    np.testing.assert_array_equal(slopes[..., 0], [[0, 0.5, 0.5, 0], [2, 2, 2, 2]])


def test_other_pools_and_small_kernels_stay_as_they_are() -> None:
    assert not suits_blocks(1, 4, 3, 3)
    assert not suits_blocks(1, 4, 2, 2)
