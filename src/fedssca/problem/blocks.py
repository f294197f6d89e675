"""Convolutions whose results are pooled: one product gives the blocks of places that are pooled.

As products of patches, convolutions of few channels take less time for the product than for
copying the patches. A block of 2 x 2 places needs a window that is one entry wider in each
direction: for a 3 x 3 kernel it has 16 entries for 4 places, in place of 36. The product has 16 / 9
as many operations, but both of its factors are wider, and pooling finds the places of a block side
by side.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.problem.convolution import Window
from fedssca.problem.problem import Array

__all__ = ["BLOCK", "convolve_blocks", "largest", "suits_blocks"]

FEW = 32
"""The number of channels, before or after, up to which copying takes longer than the product."""
BLOCK = 2
"""The side of a block."""


def suits_blocks(inputs: int, outputs: int, kernel: int, pool: int) -> bool:
    """Whether a convolution before pooling is faster in blocks."""
    return pool == BLOCK and kernel > BLOCK and min(inputs, outputs) <= FEW


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def convolve_blocks(window: Window, image: Array, kernels: Array) -> Array:
    """(rows, *blocks, places of a block, O) of images (rows, height, width, C).

    `kernels` is (*kernel, C, O), and the window lies on every place; places that fill no block are
    left out. Its derivative is JAX's own: it is declared so that `privacy.noise.ghost` finds one
    place where kernels meet data.
    """
    return _product(window, image, kernels)


def _product(window: Window, image: Array, kernels: Array) -> Array:
    count = [
        (side + sum(padding) - k + 1) // BLOCK
        for side, padding, k in zip(image.shape[1:3], window.padding, window.kernel, strict=True)
    ]
    reach = [-(-(k + BLOCK - 1) // BLOCK) for k in window.kernel]
    parts = _parts(window, image, [n + r - 1 for n, r in zip(count, reach, strict=True)])
    cuts = [parts[:, i : i + count[0], j : j + count[1]] for i, j in np.ndindex(*reach)]
    out = jnp.concatenate(cuts, axis=-1) @ _moved(kernels, reach)
    return out.reshape(len(image), *count, BLOCK * BLOCK, kernels.shape[-1])


def _forward(window: Window, image: Array, kernels: Array) -> tuple[Array, tuple[Array, Array]]:
    return convolve_blocks(window, image, kernels), (image, kernels)


def _backward(window: Window, kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    made: tuple[Array, Array] = jax.vjp(partial(_product, window), *kept)[1](slope)
    return made


convolve_blocks.defvjp(_forward, _backward)


def _parts(window: Window, image: Array, count: list[int]) -> Array:
    """(rows, *count, BLOCK * BLOCK * C): the padded image, cut into blocks."""
    rows, *sides, channels = image.shape
    ends = [
        (low, BLOCK * n - side - low, 0)
        for n, side, (low, _) in zip(count, sides, window.padding, strict=True)
    ]
    zero = jnp.zeros((), image.dtype)
    padded = jax.lax.pad(image, zero, ((0, 0, 0), *ends, (0, 0, 0)))
    parts = padded.reshape(rows, count[0], BLOCK, count[1], BLOCK, channels)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(rows, *count, -1)


def _moved(kernels: Array, reach: list[int]) -> Array:
    """The matrix from the entries of a window to the places of its block.

    It holds the kernel once for each place, moved to that place, and zeros.
    """
    *sides, inputs, outputs = kernels.shape
    each = []
    for place in np.ndindex(BLOCK, BLOCK):
        ends = [
            (at, BLOCK * r - side - at) for at, r, side in zip(place, reach, sides, strict=True)
        ]
        each.append(jnp.pad(kernels, (*ends, (0, 0), (0, 0))))
    entries = jnp.stack(each, axis=-2).reshape(reach[0], BLOCK, reach[1], BLOCK, inputs, -1)
    return entries.transpose(0, 2, 1, 3, 4, 5).reshape(-1, BLOCK * BLOCK * outputs)


@jax.custom_vjp
def largest(blocks: Array) -> Array:
    """The maximum over the places of each block; those that are equally large share its gradient.

    JAX's own gradient is the same, in more passes over the data.
    """
    return blocks.max(axis=-2)


def _largest_forward(blocks: Array) -> tuple[Array, tuple[Array, Array]]:
    most = largest(blocks)
    return most, (blocks, most)


def _largest_backward(kept: tuple[Array, Array], slope: Array) -> tuple[Array]:
    blocks, most = kept
    found = blocks == most[..., None, :]
    share = slope / found.sum(axis=-2, dtype=slope.dtype)
    return (jnp.where(found, share[..., None, :], 0),)


largest.defvjp(_largest_forward, _largest_backward)
