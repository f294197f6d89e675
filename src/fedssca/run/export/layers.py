"""The layers of a trained network as matrices, for programs that do not have fedssca."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedssca.run.model import TrainedModel

__all__ = ["Layers", "layers_of"]

Array = np.ndarray


class Layers(NamedTuple):
    """scores = act(x first') top' + bias; all ready-made networks have this form."""

    first: Array
    """(H, P) scale * W_1."""
    activation: str
    """The function of the hidden units; empty if there is none."""
    top: Array
    """(L, H) W_0 of a network; of a linear model the places of its outputs among the scores."""
    bias: Array
    """(L,) the biases of the scores: thresholds that a run sets are in them."""


def layers_of(model: TrainedModel) -> Layers:
    """The layers of a model, with the parameters that its run returned."""
    network = model.network
    w0, w1 = model.layers
    first = (w1 * network.scale).astype(w1.dtype)
    if network.name != "linear":
        return Layers(first, network.activation, w0, np.zeros(len(w0), w0.dtype))
    outputs = np.eye(len(w0), dtype=w0.dtype)
    if network.classes == 2:  # the score of the first class is 0
        return Layers(first, "", np.concatenate([0 * outputs, outputs]), np.append(0 * w0, w0))
    return Layers(first, "", outputs, w0)
