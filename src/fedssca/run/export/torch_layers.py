"""The layers of a trained network as modules of PyTorch.

Images travel as (rows, channels, height, width) between the modules, as PyTorch wants them; where
rows become images and back the order of the numbers is that of `problem.layers`.
"""

from __future__ import annotations

from typing import Any

import torch

from fedssca.problem.layers import (
    EPSILON,
    Activation,
    Bias,
    Convolution,
    Dense,
    Flatten,
    Image,
    LayerNorm,
    Pool,
)
from fedssca.run.export.layers import Filled, TrainedLayers

__all__ = ["InUnit", "network_module"]

ACTIVATIONS = {"swish": "SiLU", "relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid"}


def network_module(layers: TrainedLayers, scale: float) -> torch.nn.Module:
    """The whole network: x (rows, features) -> scores (rows, classes)."""
    return _Network(layers, scale)


class _Network(torch.nn.Module):
    def __init__(self, layers: TrainedLayers, scale: float) -> None:
        super().__init__()
        self.bottoms = torch.nn.ModuleList(_stacked(bottom) for bottom in layers.bottoms)
        self.head = _stacked(layers.head)
        self._scale, self._added = scale, layers.join == "sum"
        self._parties = [list(own) for own in layers.parties]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x] if len(self._parties) == 1 else [x[:, own] for own in self._parties]
        hs = [h(self._scale * part) for h, part in zip(self.bottoms, parts, strict=True)]
        joined = sum(hs[1:], start=hs[0]) if self._added else torch.cat(hs, dim=1)
        scores: torch.Tensor = self.head(joined)
        return scores


class InUnit(torch.nn.Module):
    """The score of a regression -> the number in the target's own unit."""

    def __init__(self, shift: float, scale: float, *, counts: bool) -> None:
        super().__init__()
        self._shift, self._scale, self._counts = shift, scale, counts

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        """shift + scale * s, or shift + scale * exp(s) for counts."""
        numbers = scores.exp() if self._counts else scores
        return self._shift + self._scale * numbers


def _stacked(layers: Filled) -> torch.nn.Sequential:
    return torch.nn.Sequential(*(_module(layer, values) for layer, values in layers))


def _module(layer: Any, values: Any) -> torch.nn.Module:
    """One layer with its parameters."""
    made: torch.nn.Module
    match layer:
        case Dense():
            made = torch.nn.Linear(values[0].shape[1], layer.outputs, bias=layer.biases)
        case LayerNorm():
            made = torch.nn.LayerNorm(layer.width, eps=EPSILON)
        case Activation():
            made = getattr(torch.nn, ACTIVATIONS[layer.name])()
        case Convolution():
            sides = layer.inputs, layer.outputs, layer.kernel
            made = torch.nn.Conv2d(*sides, padding="same", bias=layer.biases)
        case Pool():
            made = (torch.nn.MaxPool2d if layer.kind == "max" else torch.nn.AvgPool2d)(layer.size)
        case Bias():
            made = _Bias(layer.width)
        case Image():
            made = _Image(layer)
        case Flatten():
            made = _Flatten()
        case _:
            made = _ZeroFirst()
    with torch.no_grad():
        for name, array in zip(("weight", "bias"), values, strict=False):
            setattr(made, name, torch.nn.Parameter(torch.tensor(array)))
    return made


class _Bias(torch.nn.Module):
    """z + weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z + self.weight


class _Image(torch.nn.Module):
    """Rows -> images."""

    def __init__(self, layer: Image) -> None:
        super().__init__()
        self._shape = tuple(layer)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z.reshape(-1, *self._shape).permute(0, 3, 1, 2)


class _Flatten(torch.nn.Module):
    """Images -> rows."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z.permute(0, 2, 3, 1).flatten(1)


class _ZeroFirst(torch.nn.Module):
    """(0, z)."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(z), z], dim=1)
