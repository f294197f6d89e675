"""Nodes of an ONNX graph, made one after the other; a value is known by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedssca.errors import UserError
from fedssca.system import pip_install

__all__ = ["OUTPUTS", "Graph", "Value", "require_onnx"]

Array = np.ndarray
Value = str
"""The name of a value in a graph."""
OPSET, IR = 20, 9
"""Versions that onnxruntime reads from 1.17 on."""
OUTPUTS = ("prediction", "probabilities")
NAMES_OF_TYPES = {"double": "DOUBLE", "float": "FLOAT", "string": "STRING", "int64": "INT64"}


def require_onnx() -> None:
    """Raise a UserError if the package onnx is missing."""
    if find_spec("onnx") is None:
        raise UserError(f"--onnx needs onnx: {pip_install('onnx')}")


class Graph:
    """A graph under construction: inputs, nodes, constants and outputs."""

    def __init__(self) -> None:
        import onnx
        from onnx import helper, numpy_helper

        self._onnx, self._helper, self._arrays = onnx, helper, numpy_helper
        self._nodes: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], tuple[Value, Any]] = {}
        self._inputs: dict[str, Any] = {}
        self._outputs: list[Any] = []

    def input(self, name: str, kind: str, width: int | None = None) -> Value:
        """An input with one cell per row, or with `width` of them."""
        if name in OUTPUTS:
            raise UserError(
                f"a column is called {name!r} as an output of the ONNX file is; rename it and "
                "train again"
            )
        self._inputs[name] = self._declared(name, kind, width)
        return name

    def output(self, name: str, value: Value, kind: str, width: int | None = None) -> None:
        """Give a value out under a name."""
        self._nodes.append(self._helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._declared(name, kind, width))

    def constant(self, value: Any, dtype: Any) -> Value:
        """A constant array; equal ones are stored once."""
        array = np.asarray(value, dtype)
        own = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        key = (str(array.dtype), array.shape, own)
        if key not in self._constants:
            name = f"/constant_{len(self._constants)}"
            self._constants[key] = name, self._arrays.from_array(array, name)
        return self._constants[key][0]

    def add(self, operator: str, *values: Value, **attributes: Any) -> Value:
        """The result of a node."""
        name = f"/{operator}_{len(self._nodes)}"
        node = self._helper.make_node(operator, list(values), [name], **attributes)
        self._nodes.append(node)
        return name

    def cast(self, value: Value, kind: str) -> Value:
        """A value as numbers of another type."""
        return self.add("Cast", value, to=self._type(kind))

    def column(self, value: Value) -> Value:
        """(rows,) -> (rows, 1)."""
        return self.add("Unsqueeze", value, self.constant([1], np.int64))

    def any(self, values: list[Value]) -> Value:
        """Whether any of these is true."""
        found = values[0]
        for value in values[1:]:
            found = self.add("Or", found, value)
        return found

    def model(self, told: Mapping[str, Any]) -> Any:
        """The finished model; `told` are its metadata, text or what JSON can hold."""
        made = self._helper.make_graph(
            self._nodes,
            "fedssca",
            list(self._inputs.values()),
            self._outputs,
            [tensor for _, tensor in self._constants.values()],
        )
        model = self._helper.make_model(
            made, opset_imports=[self._helper.make_opsetid("", OPSET)], ir_version=IR
        )
        model.producer_name = "fedssca"
        text = {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in told.items()
        }
        self._helper.set_model_props(model, text)
        self._onnx.checker.check_model(model)
        return model

    def _declared(self, name: str, kind: str, width: int | None) -> Any:
        shape: list[str | int] = ["rows"] if width is None else ["rows", width]
        return self._helper.make_tensor_value_info(name, self._type(kind), shape)

    def _type(self, kind: str) -> int:
        return int(getattr(self._onnx.TensorProto, NAMES_OF_TYPES.get(kind, kind.upper())))
