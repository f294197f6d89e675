"""A ready-made network in plain values, as files and messages hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedssca.errors import UserError
from fedssca.problem.forms import AnyModel
from fedssca.problem.models import joined, linear, mlp
from fedssca.problem.own import own_model
from fedssca.problem.stacks import (
    Filters,
    Join,
    Stacks,
    Style,
    dense_stacks,
    linear_stacks,
    party_stacks,
)

__all__ = ["Network"]


class Network(NamedTuple):
    """A ready-made network in plain values, from which it can be built again."""

    name: str
    """ "mlp", "cnn", "linear", or a function of the user, "package.module:function"."""
    features: int
    classes: int
    hidden: int | Sequence[int]
    """The numbers of hidden units of each layer, of the head if parties have bottoms. A number
    with "mlp" and no bottoms means the paper's network."""
    activation: str
    """The function of the hidden units."""
    scale: float
    """The factor by which inputs are multiplied."""
    dtype: str
    biases: bool = False
    layer_norm: bool = False
    parties: Sequence[Sequence[int]] = ()
    """The columns of each party with a bottom of its own; empty: no bottoms. With a function of the
    user those of parties with columns."""
    bottom: Sequence[int] | Sequence[Sequence[int]] = ()
    """The widths of the dense layers of all bottoms, or of each of them."""
    join: Join = "sum"
    image: Sequence[int] = ()
    """Height, width and channels of the images of "cnn"."""
    channels: Sequence[int] = ()
    kernel: int = 3
    pool: int = 2
    pooling: str = "max"
    options: Mapping[str, Any] = {}
    """What the function of the user takes beside features, outputs and seed."""
    exclusive: bool = True
    """The scores are those of classes, of which a row has one; else of several labels at once."""

    def model(self) -> AnyModel:
        """The functions of the network."""
        if ":" in self.name:
            shape = self.name, self.features, self.classes, self.options
            return own_model(*shape, self.scale, self.dtype, self.parties)
        if self.name == "linear":
            return linear(
                self.features,
                self.classes,
                scale=self.scale,
                dtype=self.dtype,
                exclusive=self.exclusive,
            )
        if self.parties:
            return joined(self.stacks())
        return mlp(
            self.features,
            self.hidden,
            self.classes,
            self.activation,
            biases=self.biases,
            layer_norm=self.layer_norm,
            scale=self.scale,
            dtype=self.dtype,
        )

    def stacks(self) -> Stacks:
        """Its layers; the flat vector of the model is that of `Stacks.params`."""
        if ":" in self.name:
            raise UserError(f"the layers of {self.name!r} are not known, which this needs")
        numbers = self.scale, self.dtype
        if self.name == "linear":
            return linear_stacks(self.features, self.classes, *numbers, self.exclusive)
        style = Style.of(self.activation, self.biases, self.layer_norm)
        if not self.parties:
            return dense_stacks(self.features, self.hidden, self.classes, style, *numbers)
        filters = None
        if self.name == "cnn":
            shape = self.image, self.channels, self.kernel, self.pool, self.pooling
            filters = Filters.of(*shape)
        joint = self.hidden, self.classes, self.join
        return party_stacks(self.parties, self.bottom, *joint, style, *numbers, filters)
