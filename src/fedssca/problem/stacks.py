"""Ready-made networks as stacks of layers: scores = head(join_i bottom_i(x_i)).

Party i has its own bottom stack, and the head is common. A network that one layer, linear in all
features, begins has one bottom that is a single `Dense`; it can be divided among any parties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from jax.flatten_util import ravel_pytree

from fedssca.errors import UserError, nearest
from fedssca.problem.layers import (
    ACTIVATIONS,
    Activation,
    Bias,
    Convolution,
    Dense,
    Flatten,
    Image,
    LayerNorm,
    Pool,
    Stack,
    ZeroFirst,
    draw_stack,
    gain_of,
)
from fedssca.problem.problem import Array

__all__ = [
    "Filters",
    "Join",
    "Places",
    "Stacks",
    "Style",
    "check_join",
    "dense_stacks",
    "linear_stacks",
    "party_stacks",
]

Join: TypeAlias = Literal["sum", "concatenate"]
Places: TypeAlias = tuple[tuple[int, ...], ...]
"""The places of the columns of each party."""


class Style(NamedTuple):
    """What all hidden layers of a network have in common."""

    activation: str
    biases: bool
    layer_norm: bool

    @classmethod
    def of(cls, activation: str, biases: bool, layer_norm: bool) -> Style:
        """A style whose activation is known; else a UserError."""
        if activation not in ACTIVATIONS:
            raise UserError(
                f"activation = {activation!r} is unknown: {nearest(activation, ACTIVATIONS)}"
            )
        return cls(activation, biases, layer_norm)


class Filters(NamedTuple):
    """The convolutions of a network: every one is followed by an activation and by pooling."""

    image: tuple[int, int, int]
    """Height, width and channels of the images; a row is an image, line by line."""
    channels: tuple[int, ...]
    """The number of kernels of each convolution."""
    kernel: int
    pool: int
    pooling: str

    @classmethod
    def of(
        cls, image: Sequence[int], channels: Sequence[int], kernel: int, pool: int, pooling: str
    ) -> Filters:
        """Filters for images of the shape (height, width) or (height, width, channels)."""
        if len(image) not in (2, 3) or any(side < 1 for side in image):
            raise UserError(
                f"image = {list(image)}: it must be [height, width] or [height, width, channels]"
            )
        if not channels or any(count < 1 for count in channels):
            raise UserError(
                f"channels = {list(channels)}: it must be a list with the number of kernels of "
                "each convolution, at least one"
            )
        height, width, depth = (*image, 1)[:3]
        return cls((height, width, depth), tuple(channels), kernel, pool, pooling)


class Stacks(NamedTuple):
    """The layers of a network, and how it reads its inputs."""

    bottoms: tuple[Stack, ...]
    """One stack for each party."""
    head: Stack
    parties: Places
    join: Join
    scale: float
    """The factor by which inputs are multiplied."""
    dtype: str

    def init(self, seed: int) -> tuple[list[Any], list[Any]]:
        """The first parameters of the head and of all bottoms, drawn in this order."""
        normal = np.random.default_rng(seed).standard_normal
        head = draw_stack(self.head, normal, self.dtype)
        return head, [draw_stack(bottom, normal, self.dtype) for bottom in self.bottoms]

    def params(self, w: Array) -> tuple[list[Any], list[Any]]:
        """The parameters of the head and of all bottoms in a flat vector."""
        made: tuple[list[Any], list[Any]] = ravel_pytree(self.init(0))[1](w)
        return made


def dense_stacks(
    features: int, hidden: int | Sequence[int], outputs: int, style: Style, scale: float, dtype: str
) -> Stacks:
    """A network of dense layers whose first layer can be divided: its biases are in the head."""
    hidden = _widths("hidden", hidden, least=1)
    return Stacks(
        (_bottom(features, hidden[:1], style),),
        (*_begin(hidden[0], style), *_rest(hidden, outputs, style)),
        (tuple(range(features)),),
        "sum",
        scale,
        dtype,
    )


def linear_stacks(
    features: int, outputs: int, scale: float, dtype: str, exclusive: bool = True
) -> Stacks:
    """Scores W_1 x + w_0; of two classes that are `exclusive` the first has the score 0."""
    two = outputs == 2 and exclusive
    rows = 1 if two else outputs
    head: Stack = (Bias(rows), *([ZeroFirst()] if two else []))
    places = (tuple(range(features)),)
    return Stacks(((Dense(features, rows, False),),), head, places, "sum", scale, dtype)


def party_stacks(
    parties: Sequence[Sequence[int]],
    bottom: Sequence[int] | Sequence[Sequence[int]],
    hidden: int | Sequence[int],
    outputs: int,
    join: Join,
    style: Style,
    scale: float,
    dtype: str,
    filters: Filters | None = None,
) -> Stacks:
    """A bottom network for each party, and a head with the layers `hidden`.

    `bottom` are the widths of the dense layers of each party: one list for all, or one list for
    each. With `filters` convolutions come before them, and the columns of a party must be a
    rectangle of the image. The last bottom layer is linear; its biases and its activation are in
    the head.
    """
    check_join(join)
    hidden = _widths("hidden", hidden)
    places = tuple(tuple(int(place) for place in own) for own in parties)
    if filters:
        _check_image(places, filters.image)
    bottoms = _each(bottom, len(places))
    if len(bottoms) != len(places):
        raise UserError(
            f"bottom has the layers of {len(bottoms)} parties, there are {len(places)}: give one "
            "list for each party, or one list for all"
        )
    made, widths = [], []
    for number, (own, sizes) in enumerate(zip(places, bottoms, strict=True)):
        _widths("bottom", sizes, least=0 if filters else 1)
        before, width = _filtered(own, number, filters, style) if filters else ((), len(own))
        made.append((*before, *_bottom(width, sizes, style)) if sizes else before)
        widths.append(sizes[-1] if sizes else width)
    if join == "sum" and len(set(widths)) > 1:
        raise UserError(
            f'join = "sum" adds outputs of the widths {", ".join(map(str, widths))}: let all '
            'bottoms end with the same width, or use join = "concatenate"'
        )
    if len({bool(sizes) for sizes in bottoms}) > 1:
        raise UserError("bottom: either all parties have dense layers, or none has")
    width = widths[0] if join == "sum" else sum(widths)
    begin = _begin(width, style) if bottoms[0] else ()
    head = (*begin, *_rest([width, *hidden], outputs, style))
    return Stacks(tuple(made), head, places, join, scale, dtype)


def check_join(join: str) -> None:
    """Raise a UserError unless the outputs of bottoms can be joined in this way."""
    if join not in get_args(Join):
        raise UserError(f"join = {join!r} is unknown: {nearest(join, get_args(Join))}")


def _check_image(parties: Places, image: tuple[int, int, int]) -> None:
    """Raise a UserError unless the columns of all parties together are the whole image."""
    held, pixels = sum(map(len, parties)), math.prod(image)
    if held != pixels:
        raise UserError(
            f"image = {list(image)} has {pixels} numbers, the rows have {held}: set image to the "
            "[height, width] or [height, width, channels] of the rows"
        )


def _each(bottom: Sequence[Any], parties: int) -> tuple[tuple[int, ...], ...]:
    """The widths of each party's layers: the same for all, or one list for each."""
    if not bottom or any(isinstance(width, int) for width in bottom):
        return (tuple(bottom),) * parties
    return tuple(map(tuple, bottom))


def _widths(name: str, given: int | Sequence[int], least: int = 0) -> tuple[int, ...]:
    """The widths of layers; a UserError if they cannot be."""
    widths = (given,) if isinstance(given, int) else tuple(given)
    if len(widths) < least or any(width < 1 for width in widths):
        raise UserError(
            f"{name} = {list(widths)}: it must be a list with the number of units of each layer"
            f"{', at least one' if least else ''}"
        )
    return widths


def _hidden(sizes: Sequence[int], style: Style) -> Stack:
    """Dense layers from each size to the next, each with its activation."""
    layers: list[Any] = []
    for inputs, outputs in pairwise(sizes):
        layers.append(Dense(inputs, outputs, style.biases, gain_of(style.activation)))
        layers += [LayerNorm(outputs)] if style.layer_norm else []
        layers.append(Activation(style.activation))
    return tuple(layers)


def _bottom(inputs: int, sizes: Sequence[int], style: Style) -> Stack:
    """Dense layers of these widths; the last one is linear and has no biases."""
    all_ = [inputs, *sizes]
    last = Dense(all_[-2], all_[-1], False, gain_of(style.activation))
    return (*_hidden(all_[:-1], style), last)


def _begin(width: int, style: Style) -> Stack:
    """What the head does with the joined outputs of linear layers."""
    biases = (Bias(width),) if style.biases else ()
    norm = (LayerNorm(width),) if style.layer_norm else ()
    return (*biases, *norm, Activation(style.activation))


def _rest(sizes: Sequence[int], outputs: int, style: Style) -> Stack:
    """Hidden layers from each size to the next, and the layer of the scores."""
    return (*_hidden(sizes, style), Dense(sizes[-1], outputs, style.biases))


def _filtered(own: Sequence[int], number: int, filters: Filters, style: Style) -> tuple[Stack, int]:
    """The convolutions of a party with these columns, and the width of what they give."""
    height, width = _rectangle(own, number, filters.image)
    inputs = filters.image[2]
    layers: list[Any] = [Image(height, width, inputs)]
    for outputs in filters.channels:
        layers.append(
            Convolution(inputs, outputs, filters.kernel, style.biases, gain_of(style.activation))
        )
        layers.append(Activation(style.activation))
        if filters.pool > 1:
            layers.append(Pool(filters.pool, filters.pooling))
            height, width = height // filters.pool, width // filters.pool
        if not height or not width:
            raise UserError(
                f"the images of party {number} are too small for channels = "
                f"{list(filters.channels)} with pool = {filters.pool}: use fewer convolutions, or "
                "a smaller pool"
            )
        inputs = outputs
    return (*layers, Flatten()), height * width * inputs


def _rectangle(own: Sequence[int], number: int, image: tuple[int, int, int]) -> tuple[int, int]:
    """Height and width of the part of an image that these columns are."""
    pixels = np.array(sorted(own)) // image[2]
    lines, columns = np.unique(pixels // image[1]), np.unique(pixels % image[1])
    whole = len(lines) * len(columns) * image[2]
    near = (np.diff(lines) == 1).all() and (np.diff(columns) == 1).all()
    if whole != len(own) or not near:
        raise UserError(
            f"the {len(own)} columns of party {number} are no rectangle of an image of "
            f"{image[0]} x {image[1]} x {image[2]}: divide images along their lines (data.sizes)"
        )
    return len(lines), len(columns)
