"""The nodes of an ONNX graph that compute the layers of a network.

Images travel as (rows, channels, height, width) between the nodes, as ONNX wants them; where rows
become images and back the order of the numbers is that of `problem.layers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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
from fedssca.run.export.graph import Graph, Value
from fedssca.run.export.layers import Filled

__all__ = ["add_layers"]

ACTIVATED: dict[str, Callable[[Graph, Value], Value]] = {
    "relu": lambda graph, z: graph.add("Relu", z),
    "sigmoid": lambda graph, z: graph.add("Sigmoid", z),
    "swish": lambda graph, z: graph.add("Mul", z, graph.add("Sigmoid", z)),
    "tanh": lambda graph, z: graph.add("Tanh", z),
}


def add_layers(graph: Graph, layers: Filled, z: Value, dtype: str) -> Value:
    """The output of the last layer."""
    for layer, values in layers:
        z = _layer(graph, layer, [graph.constant(each, each.dtype) for each in values], z, dtype)
    return z


def _layer(graph: Graph, layer: Any, values: list[Value], z: Value, dtype: str) -> Value:
    match layer:
        case Dense():
            z = graph.add("MatMul", z, graph.add("Transpose", values[0], perm=[1, 0]))
            return graph.add("Add", z, values[1]) if layer.biases else z
        case Bias():
            return graph.add("Add", z, values[0])
        case LayerNorm():
            return graph.add("LayerNormalization", z, *values, axis=-1, epsilon=EPSILON)
        case Activation():
            return ACTIVATED[layer.name](graph, z)
        case Image():
            shape = graph.constant([-1, layer.height, layer.width, layer.channels], np.int64)
            return graph.add("Transpose", graph.add("Reshape", z, shape), perm=[0, 3, 1, 2])
        case Convolution():
            before = (layer.kernel - 1) // 2
            pads = [before, before, layer.kernel - 1 - before, layer.kernel - 1 - before]
            return graph.add("Conv", z, *values, pads=pads)
        case Pool():
            sides = [layer.size, layer.size]
            kind = "MaxPool" if layer.kind == "max" else "AveragePool"
            return graph.add(kind, z, kernel_shape=sides, strides=sides)
        case Flatten():
            return graph.add("Flatten", graph.add("Transpose", z, perm=[0, 2, 3, 1]), axis=1)
    nothing = graph.add("Mul", z, graph.constant(0, dtype))  # ZeroFirst
    return graph.add("Concat", nothing, z, axis=1)
