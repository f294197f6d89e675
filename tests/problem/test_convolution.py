"""Convolutions as products against those of JAX, with their gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.problem.convolution import as_products
from fedssca.problem.layers import Convolution

pytestmark = pytest.mark.usefixtures("float64")
CASES: dict[str, dict[str, Any]] = {
    "same": {"window_strides": (1, 1), "padding": "SAME"},
    "valid": {"window_strides": (1, 1), "padding": "VALID"},
    "strides": {"window_strides": (2, 3), "padding": "SAME"},
    "dilated": {"window_strides": (1, 1), "padding": [(2, 1), (0, 3)], "rhs_dilation": (2, 1)},
    "wide": {"window_strides": (1, 2), "padding": [(4, 4), (5, 0)]},
}
ORDERS = [("NHWC", "OIHW", "NHWC"), ("NCHW", "HWIO", "NHWC"), ("NHWC", "HWIO", "NCHW")]


def arrays(order: tuple[str, str, str]) -> tuple[np.ndarray, np.ndarray]:
    draw, sizes = np.random.default_rng(0).normal, {"N": 2, "C": 2, "H": 7, "W": 8}
    kernel = {"O": 3, "I": 2, "H": 3, "W": 2}
    return (
        draw(size=[sizes[letter] for letter in order[0]]),
        draw(size=[kernel[letter] for letter in order[1]]),
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_products_have_the_values_and_gradients_of_convolutions(
    case: str, order: tuple[str, str, str]
) -> None:
    def loss(image: Any, kernels: Any) -> Any:
        out = jax.lax.conv_general_dilated(image, kernels, dimension_numbers=order, **CASES[case])
        return jnp.sin(out).sum(), out

    given = arrays(order)
    due = jax.value_and_grad(loss, (0, 1), has_aux=True)(*given)
    quick = as_products(jax.jit(loss))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(quick)(*given))
    got = jax.jit(jax.value_and_grad(quick, (0, 1), has_aux=True))(*given)
    for a, b in zip(jax.tree.leaves(due), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_convolutions_in_groups_and_other_functions_stay_as_they_are() -> None:
    def grouped(image: Any) -> Any:
        kernels = jnp.ones((4, 1, 3, 3))
        return jax.lax.conv_general_dilated(
            image, kernels, (1, 1), "SAME", feature_group_count=2
        ).sum()

    image = np.random.default_rng(0).normal(size=(1, 2, 5, 5))
    assert float(as_products(grouped)(image)) == float(grouped(image))
    assert "conv_general_dilated" in str(jax.make_jaxpr(as_products(grouped))(image))
    tree = as_products(lambda x: {"twice": 2 * x, "none": None})(3.0)
    assert tree == {"twice": 6, "none": None}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_layer_is_a_convolution_that_keeps_the_size(size: int) -> None:
    layer = Convolution(2, 3, size)
    values = layer.draw(np.random.default_rng(0).standard_normal)
    image = np.random.default_rng(1).normal(size=(2, 6, 5, 2))
    order = ("NHWC", "OIHW", "NHWC")
    due = jax.lax.conv_general_dilated(image, values[0], (1, 1), "SAME", dimension_numbers=order)
    np.testing.assert_allclose(layer.apply(values, jnp.asarray(image)), due, atol=1e-12)


def test_a_network_of_the_user_is_trained_without_convolutions() -> None:
    def apply(params: Any, x: Any) -> Any:
        image = x.reshape(-1, 1, 4, 4)
        out = jax.lax.conv_general_dilated(image, params["k"], (1, 1), "SAME")
        return out.mean((2, 3))

    problem = fedssca.from_scores(apply, {"k": np.ones((2, 1, 3, 3))})
    batch = {"x": np.ones((3, 16)), "y": np.zeros(3, np.int32)}
    assert "conv_general_dilated" not in str(jax.make_jaxpr(problem.terms)(problem.start, batch))
