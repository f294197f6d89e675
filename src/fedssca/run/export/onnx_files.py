"""The ONNX files of a trained model: raw columns in, class and probabilities (or a number) out.

    one file          raw columns -> prediction, probabilities
    FILE-party-I      the raw columns of party I -> h_I             (parties with columns)
    FILE-head         h_1, h_2, ... -> prediction, probabilities

h_I is the output of party I's network: scale * x_I W_I' if the first layer is divided.

A row with a cell that `fedssca predict` refuses has NaN as its probabilities. A regression has the
one output prediction, a number. Of several labels at once prediction is a table of zeros and ones,
and -1 in a row that is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.encode import ColumnEncoding
from fedssca.problem.layers import apply_stack
from fedssca.run.export.encoding import EncodedColumns, encode_columns, inputs_of_columns
from fedssca.run.export.files import write_file
from fedssca.run.export.graph import Graph, Value, require_onnx
from fedssca.run.export.layers import Filled, TrainedLayers, layers_of
from fedssca.run.export.onnx_layers import add_layers
from fedssca.run.model import TrainedModel

__all__ = ["export_onnx"]

KINDS = {"float32": "float", "float64": "double"}


def export_onnx(model: TrainedModel, path: Path) -> list[Path]:
    """Write the ONNX files of a model; returns their paths."""
    require_onnx()
    made = {path: _whole(model)} if not model.blocks else _apart(model, path)
    return [write_file(place, graph.SerializeToString(), "--onnx") for place, graph in made.items()]


def _whole(model: TrainedModel) -> Any:
    graph, layers = Graph(), layers_of(model)
    x, wrong, told = _inputs(graph, model, np.arange(model.network.features))
    parts = [_picked(graph, x, own, model.network.features) for own in layers.parties]
    hs = [
        _hidden(graph, model, part, wrong, bottom)
        for part, bottom in zip(parts, layers.bottoms, strict=True)
    ]
    _top(graph, model, layers, hs)
    return graph.model(_told(model) | told)


def _apart(model: TrainedModel, path: Path) -> dict[Path, Any]:
    """One graph for each party with columns, and one for the head."""
    layers, kind = layers_of(model), KINDS[model.network.dtype]
    bottoms = _divided(layers, model.blocks)
    widths = [sum(_width(bottom, len(own)) for own, bottom in parts) for parts in bottoms]
    made = {}
    for number, (block, parts) in enumerate(zip(model.blocks, bottoms, strict=True), 1):
        graph = Graph()
        x, wrong, told = _inputs(graph, model, np.array(block))
        hs = [
            _hidden(graph, model, _picked(graph, x, own, len(block)), wrong, bottom)
            for own, bottom in parts
        ]
        h = hs[0] if len(hs) == 1 else graph.add("Concat", *hs, axis=1)
        graph.output("h", h, kind, widths[number - 1])
        place = path.with_name(f"{path.stem}-party-{number}{path.suffix}")
        made[place] = graph.model(_told(model) | told | {"party": number})
    graph = Graph()
    hs = [graph.input(f"h_{i}", kind, width) for i, width in enumerate(widths, 1)]
    _top(graph, model, layers, hs)
    head = path.with_name(f"{path.stem}-head{path.suffix}")
    return made | {head: graph.model(_told(model) | {"parties": len(hs)})}


def _divided(
    layers: TrainedLayers, blocks: Sequence[Sequence[int]]
) -> list[list[tuple[list[int], Filled]]]:
    """The networks of each party, each with the places of its columns among those of the party.

    A first layer that is common is divided by its columns.
    """
    if len(layers.bottoms) == 1 < len(blocks):
        (((first, (weights,)),),) = layers.bottoms
        return [[(list(range(len(own))), [(first, (weights[:, list(own)],))])] for own in blocks]
    pairs = list(zip(layers.parties, layers.bottoms, strict=True))
    return [
        [
            ([list(own).index(place) for place in columns], bottom)
            for columns, bottom in pairs
            if set(columns) <= set(own)
        ]
        for own in blocks
    ]


def _picked(graph: Graph, x: Value, own: Sequence[int], width: int) -> Value:
    """Some of the columns of x."""
    if list(own) == list(range(width)):
        return x
    return graph.add("Gather", x, graph.constant(list(own), np.int64), axis=1)


def _width(bottom: Filled, inputs: int) -> int:
    """The number of outputs of a bottom."""
    arrays = [tuple(map(jnp.asarray, values)) for _, values in bottom]
    rows = jax.ShapeDtypeStruct((1, inputs), arrays[0][0].dtype if arrays[0] else np.float32)
    stack = tuple(layer for layer, _ in bottom)
    return int(jax.eval_shape(partial(apply_stack, stack), arrays, rows).shape[1])


def _inputs(
    graph: Graph, model: TrainedModel, own: Any
) -> tuple[Value, list[Value], dict[str, Any]]:
    """The features `own` of the network, marks of rows that cannot be encoded, and the inputs."""
    if model.encoder is None:
        x, wrong = EncodedColumns(graph.input("x", "float", len(own)), [])
        told: dict[str, Any] = {"features": [model.features[place] for place in own]}
    else:
        columns, places = _columns(model, own)
        x, wrong = encode_columns(graph, model, columns)
        told = {"columns": inputs_of_columns(model, columns)}
        if len(places) < sum(len(column.features) for column in columns):
            x = graph.add("Gather", x, graph.constant(places, np.int64), axis=1)
    return x, wrong, told


def _hidden(
    graph: Graph, model: TrainedModel, x: Value, wrong: list[Value], bottom: Filled
) -> Value:
    """h of the features x; a row with a cell that cannot be encoded has NaN as its h."""
    dtype, scale = model.network.dtype, model.network.scale
    if KINDS[dtype] != "float":
        x = graph.cast(x, KINDS[dtype])
    if scale != 1:
        x = graph.add("Mul", x, graph.constant(scale, dtype))
    h = add_layers(graph, bottom, x, dtype)
    if wrong:
        refused = graph.column(graph.any(wrong))
        h = graph.add("Where", refused, graph.constant(np.nan, dtype), h)
    return h


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


def _top(graph: Graph, model: TrainedModel, layers: TrainedLayers, hs: list[Value]) -> None:
    """The outputs: the scores of the head, their softmax, and the class of the largest.

    Of several labels: their sigmoids, and 1 for each label whose probability is above one half.
    A regression has one score, from which the number in the target's own unit is made.
    """
    dtype = model.network.dtype
    kind = KINDS[dtype]
    h = graph.add("Sum", *hs) if layers.join == "sum" else graph.add("Concat", *hs, axis=1)
    scores = add_layers(graph, layers.head, h, dtype)
    if model.target is not None:
        counts = model.config.problem.target == "count"
        number = graph.add("Exp", scores) if counts else scores
        for node, value in (("Mul", model.target.scale), ("Add", model.target.shift)):
            number = graph.add(node, number, graph.constant(value, np.dtype(dtype)))
        flat = graph.add("Squeeze", number, graph.constant([1], np.int64))
        graph.output("prediction", flat, kind)
        return
    axes = graph.constant([1], np.int64)
    refused = graph.add("IsNaN", graph.add("ReduceSum", h, axes))  # (rows, 1)
    nothing = graph.constant(np.nan, dtype)
    if not model.exclusive:
        chances = graph.add("Sigmoid", scores)
        above = graph.add("Greater", chances, graph.constant(0.5, dtype))
        found = graph.add(
            "Where", refused, graph.constant(-1, np.int64), graph.cast(above, "int64")
        )
        graph.output("prediction", found, "int64", len(model.classes))
        shown = graph.add("Where", refused, nothing, chances)
        graph.output("probabilities", shown, kind, len(model.classes))
        return
    chances = graph.add("Softmax", scores, axis=1)
    whole = all(isinstance(name, int) and not isinstance(name, bool) for name in model.classes)
    names = graph.constant(model.classes, np.int64) if whole else _names(graph, model)
    chosen = graph.add("Gather", names, graph.add("ArgMax", chances, axis=1, keepdims=0))
    if not whole:
        flat = graph.add("Squeeze", refused, axes)
        chosen = graph.add("Where", flat, graph.constant("", object), chosen)
    graph.output("prediction", chosen, "int64" if whole else "string")
    shown = graph.add("Where", refused, nothing, chances)
    graph.output("probabilities", shown, kind, len(model.classes))


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
