"""The ONNX files of a trained model: raw columns in, class and probabilities out.

    one file          raw columns -> prediction, probabilities
    FILE-party-I      the raw columns of party I -> h_I = scale * x_I W_I'    (parties with columns)
    FILE-head         h_1, h_2, ... -> prediction, probabilities

A row with a cell that `fedssca predict` refuses has NaN as its probabilities.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedssca.data.encode import ColumnEncoding
from fedssca.run.export.encoding import EncodedColumns, encode_columns, inputs_of_columns
from fedssca.run.export.files import write_file
from fedssca.run.export.graph import Graph, Value, require_onnx
from fedssca.run.export.layers import Layers, layers_of
from fedssca.run.model import TrainedModel

__all__ = ["export_onnx"]

KINDS = {"float32": "float", "float64": "double"}


def export_onnx(model: TrainedModel, path: Path) -> list[Path]:
    """Write the ONNX files of a model; returns their paths."""
    require_onnx()
    made = {path: _whole(model)} if not model.blocks else _apart(model, path)
    return [write_file(place, graph.SerializeToString(), "--onnx") for place, graph in made.items()]


def _whole(model: TrainedModel) -> Any:
    graph = Graph()
    h, told = _hidden(graph, model, None)
    _top(graph, model, h)
    return graph.model(_told(model) | told)


def _apart(model: TrainedModel, path: Path) -> dict[Path, Any]:
    """One graph for each party with columns, and one for the head."""
    width, kind = len(layers_of(model).first), KINDS[model.network.dtype]
    made = {}
    for number, block in enumerate(model.blocks, 1):
        graph = Graph()
        h, told = _hidden(graph, model, np.array(block))
        graph.output("h", h, kind, width)
        place = path.with_name(f"{path.stem}-party-{number}{path.suffix}")
        made[place] = graph.model(_told(model) | told | {"party": number})
    graph = Graph()
    hs = [graph.input(f"h_{i + 1}", kind, width) for i in range(len(model.blocks))]
    _top(graph, model, graph.add("Sum", *hs))
    head = path.with_name(f"{path.stem}-head{path.suffix}")
    return made | {head: graph.model(_told(model) | {"parties": len(hs)})}


def _hidden(graph: Graph, model: TrainedModel, block: Any) -> tuple[Value, dict[str, Any]]:
    """h = x first' of all features or of one block of them, and what the inputs are.

    A row with a cell that cannot be encoded has NaN as its h.
    """
    kind, first = KINDS[model.network.dtype], layers_of(model).first
    own = np.arange(first.shape[1]) if block is None else block
    if model.encoder is None:
        x, wrong = EncodedColumns(graph.input("x", "float", len(own)), [])
        told: dict[str, Any] = {"features": [model.features[place] for place in own]}
    else:
        columns, places = _columns(model, own)
        x, wrong = encode_columns(graph, model, columns)
        told = {"columns": inputs_of_columns(model, columns)}
        if len(places) < sum(len(column.features) for column in columns):
            x = graph.add("Gather", x, graph.constant(places, np.int64), axis=1)
    if kind != "float":
        x = graph.cast(x, kind)
    h = graph.add("MatMul", x, graph.constant(first[:, own].T, first.dtype))
    if wrong:
        refused = graph.column(graph.any(wrong))
        h = graph.add("Where", refused, graph.constant(np.nan, first.dtype), h)
    return h, told


def _columns(model: TrainedModel, own: Any) -> tuple[list[ColumnEncoding], list[int]]:
    """The raw columns that some features need, and the places of these features among theirs."""
    assert model.encoder is not None
    needed: list[ColumnEncoding] = []
    places: dict[int, int] = {}
    begin = width = 0
    for column in model.encoder.columns:
        features = range(begin, begin + len(column.features))
        if set(features) & set(own.tolist()):
            needed.append(column)
            places |= {feature: width + k for k, feature in enumerate(features)}
            width += len(features)
        begin += len(features)
    return needed, [places[feature] for feature in own.tolist()]


def _top(graph: Graph, model: TrainedModel, h: Value) -> None:
    """The outputs: scores = act(h) top' + bias, their softmax, and the class of the largest."""
    layers, kind = layers_of(model), KINDS[model.network.dtype]
    scores = graph.add("MatMul", _activated(graph, layers, h), _matrix(graph, layers.top.T))
    scores = graph.add("Add", scores, _matrix(graph, layers.bias))
    chances = graph.add("Softmax", scores, axis=1)
    whole = all(isinstance(name, int) and not isinstance(name, bool) for name in model.classes)
    names = graph.constant(model.classes, np.int64) if whole else _names(graph, model)
    chosen = graph.add("Gather", names, graph.add("ArgMax", chances, axis=1, keepdims=0))
    axes = graph.constant([1], np.int64)
    refused = graph.add("IsNaN", graph.add("ReduceSum", h, axes))  # (rows, 1)
    if not whole:
        flat = graph.add("Squeeze", refused, axes)
        chosen = graph.add("Where", flat, graph.constant("", object), chosen)
    graph.output("prediction", chosen, "int64" if whole else "string")
    nothing = graph.constant(np.nan, layers.bias.dtype)
    shown = graph.add("Where", refused, nothing, chances)
    graph.output("probabilities", shown, kind, len(model.classes))


def _activated(graph: Graph, layers: Layers, h: Value) -> Value:
    nodes = {
        "relu": lambda: graph.add("Relu", h),
        "sigmoid": lambda: graph.add("Sigmoid", h),
        "swish": lambda: graph.add("Mul", h, graph.add("Sigmoid", h)),
        "tanh": lambda: graph.add("Tanh", h),
    }
    return nodes[layers.activation]() if layers.activation else h


def _matrix(graph: Graph, array: Any) -> Value:
    return graph.constant(array, array.dtype)


def _names(graph: Graph, model: TrainedModel) -> Value:
    return graph.constant([str(name) for name in model.classes], object)


def _told(model: TrainedModel) -> dict[str, Any]:
    """The metadata of every file."""
    return {
        "classes": list(model.classes),
        "label": model.label,
        "digest": model.digest,
        "versions": model.versions,
    }
