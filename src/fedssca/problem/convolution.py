"""Convolutions as matrix products, which stay fast inside compiled loops.

XLA computes the gradients of a convolution on a processor up to fifty times more slowly inside a
loop than outside. As products of the patches of an image they are equally fast in both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from fedssca.problem.problem import Array
from fedssca.problem.tracing import bind, called, shape_of, walk

__all__ = ["Window", "as_products", "convolve", "patches"]


class Window(NamedTuple):
    """Where the kernel of a convolution is laid on an image, for each direction."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @classmethod
    def same(cls, size: int, directions: int = 2) -> Window:
        """A square kernel that keeps the size of the image."""
        ones = (1,) * directions
        return cls((size,) * directions, ones, ones, ((((size - 1) // 2), size // 2),) * directions)

    def flipped(self) -> Window | None:
        """The window of the convolution that gives gradients in the image, if it is one."""
        reach = [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]
        padding = tuple(
            (r - low, r - high) for r, (low, high) in zip(reach, self.padding, strict=True)
        )
        plain = set(self.strides) == {1} and min(sum(padding, ())) >= 0
        return self._replace(padding=padding) if plain else None


def patches(window: Window, image: Array) -> Array:
    """(rows, *places, kernel entries * channels) of images (rows, *sides, channels)."""
    padded = jnp.pad(image, ((0, 0), *window.padding, (0, 0)))
    cuts = []
    for offset in np.ndindex(*window.kernel):
        begin = [o * d for o, d in zip(offset, window.dilation, strict=True)]
        ends = [
            side - (k - 1 - o) * d
            for side, k, o, d in zip(
                padded.shape[1:-1], window.kernel, offset, window.dilation, strict=True
            )
        ]
        first, last = (0, *begin, 0), (len(padded), *ends, padded.shape[-1])
        cuts.append(jax.lax.slice(padded, first, last, (1, *window.strides, 1)))
    return jnp.concatenate(cuts, axis=-1)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def convolve(window: Window, image: Array, kernels: Array) -> Array:
    """Images (rows, *places, O) from images (rows, *sides, C) and kernels (*kernel, C, O)."""
    return patches(window, image) @ kernels.reshape(-1, kernels.shape[-1])


def _forward(window: Window, image: Array, kernels: Array) -> tuple[Array, tuple[Array, Array]]:
    return convolve(window, image, kernels), (image, kernels)


def _backward(window: Window, kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    image, kernels = kept
    directions = tuple(range(len(window.kernel)))
    cuts, back = jax.vjp(partial(patches, window), image)
    flat = slope.reshape(-1, slope.shape[-1])
    in_kernels = cuts.reshape(-1, cuts.shape[-1]).T @ flat
    if (window_back := window.flipped()) is not None:
        turned = jnp.swapaxes(jnp.flip(kernels, directions), -1, -2)
        in_image = convolve(window_back, slope, turned)
    else:
        (in_image,) = back(slope @ kernels.reshape(-1, kernels.shape[-1]).T)
    return in_image, in_kernels.reshape(kernels.shape)


convolve.defvjp(_forward, _backward)


def as_products(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with convolutions as matrix products; others stay as they are.

    Left alone are convolutions in groups or of spread images, and those inside loops, branches and
    functions with derivatives of their own.
    """

    def rewritten(*given: Any) -> Any:
        program, shape = jax.make_jaxpr(function, return_shape=True)(*given)
        if not _has_convolution(program):
            return function(*given)
        made = walk(program, jax.tree.leaves(given), _step)
        return jax.tree.unflatten(jax.tree.structure(shape), made)

    return rewritten


def _has_convolution(program: ClosedJaxpr) -> bool:
    return any(
        equation.primitive.name == "conv_general_dilated"
        or ((inner := called(equation)) is not None and _has_convolution(inner))
        for equation in program.eqns
    )


def _step(equation: JaxprEqn, given: list[Any]) -> list[Any]:
    inner = called(equation)
    if inner is not None and _has_convolution(inner):
        return walk(inner, given, _step)
    if equation.primitive.name == "conv_general_dilated" and (window := _window(equation)):
        return [_product(window, equation.params["dimension_numbers"], *given)]
    return bind(equation, given)


def _window(equation: JaxprEqn) -> Window | None:
    """Where the kernel lies, or None for a convolution that is left as it is."""
    params = equation.params
    grouped = params["feature_group_count"] * params["batch_group_count"] != 1
    if grouped or set(params["lhs_dilation"]) != {1} or min(sum(params["padding"], ())) < 0:
        return None
    shape, order = shape_of(equation.invars[1]).shape, params["dimension_numbers"].rhs_spec[2:]
    kernel = tuple(shape[axis] for axis in order)
    return Window(kernel, params["window_strides"], params["rhs_dilation"], params["padding"])


def _product(window: Window, order: Any, image: Array, kernels: Array) -> Array:
    """The convolution of arrays whose axes have another order."""
    rows, channels, *sides = order.lhs_spec
    outputs, inputs, *entries = order.rhs_spec
    out = convolve(
        window,
        jnp.transpose(image, (rows, *sides, channels)),
        jnp.transpose(kernels, (*entries, inputs, outputs)),
    )
    first, last, *places = order.out_spec
    return jnp.transpose(out, tuple(np.argsort((first, *places, last))))
