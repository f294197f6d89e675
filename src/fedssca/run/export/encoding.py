"""Raw columns to x inside an ONNX graph, cell by cell as `data/encode` does it.

Each raw column is one input: numbers, dates and codes are doubles (NaN if missing; a date is its
days since 1970-01-01), categories and booleans are text ("" or a marker such as "?" if missing).
A graph cannot raise errors. A cell that `fedssca predict` refuses (an infinite number, a word that
is no boolean) marks its row as wrong instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedssca.data.encode import (
    BooleanEncoding,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    NumberEncoding,
    as_text,
)
from fedssca.data.lines import Reading
from fedssca.data.tables import number_of
from fedssca.run.export.graph import Graph, Value
from fedssca.run.model import TrainedModel

__all__ = ["EncodedColumns", "encode_columns", "inputs_of_columns"]

SPACE = r"[\t-\r\x1c-\x1f\x{85}\pZ]*"
"""What Python strips at the ends of text, as a pattern of RE2."""


class EncodedColumns(NamedTuple):
    """The encoded columns of some raw columns in a graph."""

    x: Value
    """(rows, features) float."""
    wrong: list[Value]
    """Each marks rows (rows,) that hold a cell that cannot be encoded."""


def inputs_of_columns(
    model: TrainedModel, columns: Sequence[ColumnEncoding]
) -> dict[str, dict[str, str]]:
    """What each input of a graph is: its kind of column, and the type of its tensor."""
    return {
        _source(model.reading, column): {
            "kind": column.kind,
            "tensor": "double" if _is_number(model, column) else "string",
        }
        for column in columns
    }


def encode_columns(
    graph: Graph, model: TrainedModel, columns: Sequence[ColumnEncoding]
) -> EncodedColumns:
    """Encode raw columns; they become the inputs of the graph."""
    parts, wrong = [], []
    for column in columns:
        nodes = _ColumnNodes(graph, model, column)
        parts += [graph.column(feature) for feature in nodes.features()]
        wrong += nodes.wrong
    return EncodedColumns(graph.add("Concat", *parts, axis=1), wrong)


class _ColumnNodes:
    """The nodes of one raw column."""

    def __init__(self, graph: Graph, model: TrainedModel, column: ColumnEncoding) -> None:
        self._graph, self._reading, self._column = graph, model.reading, column
        self._numbers = _is_number(model, column)
        source = _source(model.reading, column)
        self._cells = graph.input(source, "double" if self._numbers else "string")
        if source != column.name:  # sex of the ready-made credit data is 1 for SEX = 1
            men = graph.add("Equal", self._cells, graph.constant(1.0, np.float64))
            self._cells = graph.cast(men, "double")
        self.wrong: list[Value] = []

    def features(self) -> list[Value]:
        """The features of the column, float (rows,) each."""
        column, missing = self._column, self._missing()
        if isinstance(column, CategoryEncoding):
            return self._kinds(column, missing)
        values = self._words(column, missing) if isinstance(column, BooleanEncoding) else None
        if values is None:
            values = self._cells
            self.wrong.append(self._graph.add("IsInf", values))
        assert isinstance(column, NumberEncoding | DateEncoding | BooleanEncoding)
        filled = self._graph.add("Where", missing, self._double(column.fill), values)
        if not isinstance(column, BooleanEncoding):
            filled = self._standardised(filled, column.mean, column.deviation)
        own = [self._graph.cast(filled, "float")]
        return [*own, self._graph.cast(missing, "float")] if column.indicator else own

    def _missing(self) -> Value:
        graph = self._graph
        if not self._numbers:
            return self._matches(sorted(self._reading.markers))
        marks = [mark for mark in map(number_of, self._reading.missing) if mark is not None]
        marked = [graph.add("Equal", self._cells, self._double(mark)) for mark in marks]
        return graph.any([graph.add("IsNaN", self._cells), *marked])

    def _standardised(self, values: Value, mean: float, deviation: float) -> Value:
        """(x - mean) / deviation, and 0 if the deviation is 0."""
        if not deviation:
            return self._graph.add("Mul", values, self._double(0.0))
        distance = self._graph.add("Sub", values, self._double(mean))
        return self._graph.add("Div", distance, self._double(deviation))

    def _words(self, column: BooleanEncoding, missing: Value) -> Value:
        """1.0 for the word of true and for 1; others than the two words are wrong."""
        graph = self._graph
        true, false = (
            self._matches([word, digit, f"{digit}.0"], any_case=True)
            for word, digit in ((column.true, "1"), (column.false, "0"))
        )
        self.wrong.append(graph.add("Not", graph.any([missing, true, false])))
        return graph.cast(true, "double")

    def _kinds(self, column: CategoryEncoding, missing: Value) -> list[Value]:
        """One feature for missing cells, one per kind, one for other values."""
        known = [missing] if column.missing else []
        known += [self._is_kind(kind) for kind in column.kinds]
        if column.other:
            known.append(self._graph.add("Not", self._graph.any(known)))
        return [self._graph.cast(one, "float") for one in known]

    def _is_kind(self, kind: str) -> Value:
        if self._numbers:
            return self._graph.add("Equal", self._cells, self._double(float(kind)))
        return self._matches([kind])

    def _matches(self, words: Sequence[str], any_case: bool = False) -> Value:
        """Whether a cell is one of these words, with any space at its ends."""
        own = "|".join(_either_case(word) if any_case else re.escape(word) for word in words)
        pattern = f"{SPACE}(?:{own}){SPACE}"
        return self._graph.add("RegexFullMatch", self._cells, pattern=pattern)

    def _double(self, number: float) -> Value:
        return self._graph.constant(number, np.float64)


def _source(reading: Reading, column: ColumnEncoding) -> str:
    """The raw column; the ready-made credit data has sex in place of SEX."""
    return "SEX" if reading.ready_made == "credit" and column.name == "sex" else column.name


def _is_number(model: TrainedModel, column: ColumnEncoding) -> bool:
    """Whether the cells are numbers: also categories, if the run says that numbers are codes."""
    if not isinstance(column, CategoryEncoding):
        return not isinstance(column, BooleanEncoding)
    return column.name in model.config.data.categories and all(
        (number := number_of(kind)) is not None and str(as_text(np.array([number]))[0]) == kind
        for kind in column.kinds
    )


def _either_case(word: str) -> str:
    """A pattern for a word in small or capital letters."""
    return "".join(
        f"[{letter}{letter.upper()}]" if letter.isalpha() else re.escape(letter) for letter in word
    )
