"""Layers of networks, and stacks of them: z -> layer_n(... layer_1(z)).

A layer is plain data. `draw` gives its first parameters, and `apply` its output from parameters and
inputs; what the numbers of a layer mean is written here once, also for files in other formats. Rows
come first in every array; images are (rows, height, width, channels).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.problem.blocks import convolve_blocks, largest, suits_blocks
from fedssca.problem.convolution import Window, convolve
from fedssca.problem.problem import Array
from fedssca.problem.starts import first_array

__all__ = [
    "ACTIVATIONS",
    "EPSILON",
    "Activation",
    "Bias",
    "Convolution",
    "Dense",
    "Flatten",
    "Image",
    "Layer",
    "LayerNorm",
    "Pool",
    "Stack",
    "ZeroFirst",
    "apply_stack",
    "draw_stack",
    "gain_of",
]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "swish": jax.nn.swish,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
}
EPSILON = 1e-5
"""What a LayerNorm adds to the variance."""
Values: TypeAlias = tuple[Any, ...]
"""The parameters of one layer; empty if it has none."""
Draw: TypeAlias = Callable[[tuple[int, ...]], np.ndarray]
"""A shape -> independent standard normal numbers."""


def gain_of(activation: str) -> float:
    """The factor of weights before an activation that lets about half of the variance pass."""
    return math.sqrt(2) if activation in ("relu", "swish") else 1.0


class Dense(NamedTuple):
    """z W' + b with W (outputs, inputs); weights start at N(0, gain^2 / inputs), biases at 0."""

    inputs: int
    outputs: int
    biases: bool = True
    gain: float = 1.0

    def draw(self, normal: Draw) -> Values:
        """W and, if there are biases, b."""
        weights = normal((self.outputs, self.inputs)) * self.gain / np.sqrt(self.inputs)
        return (weights, np.zeros(self.outputs)) if self.biases else (weights,)

    def apply(self, values: Values, z: Array) -> Array:
        """z W' + b."""
        linear = z @ values[0].T
        return linear + values[1] if self.biases else linear


class Bias(NamedTuple):
    """z + b; b starts at 0."""

    width: int

    def draw(self, normal: Draw) -> Values:
        """b."""
        del normal
        return (np.zeros(self.width),)

    def apply(self, values: Values, z: Array) -> Array:
        """z + b."""
        return z + values[0]


class LayerNorm(NamedTuple):
    """g (z - mean(z)) / sqrt(var(z) + 1e-5) + b in every row; g starts at 1, b at 0."""

    width: int

    def draw(self, normal: Draw) -> Values:
        """g and b."""
        del normal
        return np.ones(self.width), np.zeros(self.width)

    def apply(self, values: Values, z: Array) -> Array:
        """The normalised rows."""
        off = z - z.mean(axis=-1, keepdims=True)
        spread = jnp.square(off).mean(axis=-1, keepdims=True)
        return values[0] * off * jax.lax.rsqrt(spread + EPSILON) + values[1]


class Activation(NamedTuple):
    """S(z) in every entry."""

    name: str

    def draw(self, normal: Draw) -> Values:
        """Nothing."""
        del normal
        return ()

    def apply(self, values: Values, z: Array) -> Array:
        """S(z)."""
        del values
        return ACTIVATIONS[self.name](z)


class ZeroFirst(NamedTuple):
    """(0, z): of two classes the first has the score 0."""

    def draw(self, normal: Draw) -> Values:
        """Nothing."""
        del normal
        return ()

    def apply(self, values: Values, z: Array) -> Array:
        """A column of zeros, then z."""
        del values
        return jnp.concatenate([jnp.zeros_like(z), z], axis=1)


class Image(NamedTuple):
    """(rows, height * width * channels) -> (rows, height, width, channels)."""

    height: int
    width: int
    channels: int

    def draw(self, normal: Draw) -> Values:
        """Nothing."""
        del normal
        return ()

    def apply(self, values: Values, z: Array) -> Array:
        """The same numbers as images."""
        del values
        return z.reshape(-1, self.height, self.width, self.channels)


class Convolution(NamedTuple):
    """The convolution with kernels W (outputs, inputs, kernel, kernel), plus b.

    The image is padded with zeros and keeps its size. Weights start at
    N(0, gain^2 / (inputs kernel^2)).
    """

    inputs: int
    outputs: int
    kernel: int
    biases: bool = True
    gain: float = 1.0

    def draw(self, normal: Draw) -> Values:
        """W and, if there are biases, b."""
        drawn = normal((self.outputs, self.inputs, self.kernel, self.kernel))
        weights = drawn * self.gain / np.sqrt(self.inputs * self.kernel**2)
        return (weights, np.zeros(self.outputs)) if self.biases else (weights,)

    def apply(self, values: Values, z: Array) -> Array:
        """One image for each kernel."""
        out = convolve(Window.same(self.kernel), z, values[0].transpose(2, 3, 1, 0))
        return out + values[1] if self.biases else out


class Pool(NamedTuple):
    """The largest or the mean entry of every square of size x size; what is left over is cut."""

    size: int
    kind: str = "max"

    def draw(self, normal: Draw) -> Values:
        """Nothing."""
        del normal
        return ()

    def apply(self, values: Values, z: Array) -> Array:
        """Images whose sides are divided by `size`."""
        del values
        rows, (height, width), size = (
            len(z),
            (side // self.size for side in z.shape[1:3]),
            self.size,
        )
        cut = z[:, : height * size, : width * size]
        squares = cut.reshape(rows, height, size, width, size, -1)
        return squares.max(axis=(2, 4)) if self.kind == "max" else squares.mean(axis=(2, 4))


class Flatten(NamedTuple):
    """(rows, height, width, channels) -> (rows, height * width * channels)."""

    def draw(self, normal: Draw) -> Values:
        """Nothing."""
        del normal
        return ()

    def apply(self, values: Values, z: Array) -> Array:
        """The same numbers in one list for each row."""
        del values
        return z.reshape(len(z), -1)


Layer: TypeAlias = (
    Dense | Bias | LayerNorm | Activation | ZeroFirst | Image | Convolution | Pool | Flatten
)
Stack: TypeAlias = tuple[Layer, ...]
"""Layers that are applied one after the other."""


def draw_stack(layers: Stack, normal: Draw, dtype: str) -> list[Values]:
    """The first parameters of all layers, in their order."""
    return [tuple(first_array(v, dtype) for v in layer.draw(normal)) for layer in layers]


def apply_stack(layers: Stack, values: Sequence[Values], z: Array) -> Array:
    """The output of the last layer."""
    at = 0
    while at < len(layers):
        step = layers[at : at + 3]
        if _in_blocks(step):
            z = _pooled(step, values[at], z)
        else:
            step = layers[at : at + 1]
            z = step[0].apply(values[at], z)
        at += len(step)
    return z


def _in_blocks(step: Stack) -> bool:
    """Whether these layers are a convolution, its activation and pooling, and suit blocks."""
    match step:
        case (Convolution() as first, Activation(), Pool() as last):
            return suits_blocks(first.inputs, first.outputs, first.kernel, last.size)
    return False


def _pooled(step: Stack, values: Values, z: Array) -> Array:
    """The three layers together.

    Biases and relu keep the order of numbers, so they are applied to the largest ones only.
    """
    convolution, activation, pool = cast("tuple[Convolution, Activation, Pool]", step)
    kernels = values[0].transpose(2, 3, 1, 0)
    blocks = convolve_blocks(Window.same(convolution.kernel), z, kernels)
    first = pool.kind == "max" and activation == Activation("relu")
    out = largest(blocks) if first else blocks
    out = activation.apply((), out + values[1] if convolution.biases else out)
    if first:
        return out
    return largest(out) if pool.kind == "max" else out.mean(axis=-2)
