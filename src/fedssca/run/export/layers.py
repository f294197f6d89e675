"""The layers of a trained network with their parameters, for programs that do not have fedssca."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.problem.layers import Layer
from fedssca.problem.stacks import Join, Places
from fedssca.run.model import TrainedModel

__all__ = ["Filled", "TrainedLayers", "layers_of"]

Filled = list[tuple[Layer, tuple[Any, ...]]]
"""Layers in their order, each with its parameters as arrays."""


class TrainedLayers(NamedTuple):
    """scores = head(join_i bottom_i(scale * x_i)); all ready-made networks have this form."""

    bottoms: list[Filled]
    head: Filled
    parties: Places
    """The columns of each bottom. A first layer that can be divided is one bottom."""
    join: Join


def layers_of(model: TrainedModel) -> TrainedLayers:
    """The layers of a model, with the parameters that its run returned."""
    with model.own_precision():
        stacks = model.network.stacks()
        head, bottoms = stacks.params(jnp.asarray(model.w))

    def filled(layers: Any, values: Any) -> Filled:
        arrays = [tuple(np.asarray(each) for each in own) for own in values]
        return list(zip(layers, arrays, strict=True))

    return TrainedLayers(
        [filled(*each) for each in zip(stacks.bottoms, bottoms, strict=True)],
        filled(stacks.head, head),
        stacks.parties,
        stacks.join,
    )
