"""THE encoder of tables: named columns of raw cells become the float32 matrix x.

It is fitted once, from summaries of the training rows that add up over sites, and its saved state
encodes the rows of the simulator, of sites and of predictions alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedssca.data.classes import Label, class_names
from fedssca.data.encode.cells import Array, missing_cells
from fedssca.data.encode.columns import CategoryEncoding, ColumnEncoding, encoding_from_state
from fedssca.data.encode.fit import fitted, looks_like_id
from fedssca.data.encode.labels import LabelName, as_label, class_places, label_cells
from fedssca.data.encode.summary import ColumnSummary, EncodingRules, joined
from fedssca.data.lines import Reading
from fedssca.errors import UserError, nearest

__all__ = ["Encoder", "fit_encoder"]


@dataclass(frozen=True)
class Encoder:
    """How raw rows become x and y; the state that a model is saved with."""

    columns: tuple[ColumnEncoding, ...]
    """The columns that are features, in the order of x."""
    label: LabelName = ""
    """The label column, or the names of several labels."""
    labels: tuple[Label, ...] = ()
    """The values of the label that the classes 0, 1, ... stand for; of several labels the names."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Columns of the training rows that are no features, and why, such as "an id"."""
    reading: Reading = field(default_factory=Reading)
    """How files with raw rows are read."""
    id: str = ""
    """The column that identifies rows: the one that was named, or the first that looks like it."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns of x."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def category_places(self) -> tuple[tuple[int, ...], ...]:
        """The places of the features that were made of each column of categories."""
        ends = np.cumsum([len(column.features) for column in self.columns])
        return tuple(
            tuple(range(end - len(column.features), end))
            for column, end in zip(self.columns, ends.tolist(), strict=True)
            if isinstance(column, CategoryEncoding)
        )

    def encode(self, table: Mapping[str, Array], where: str = "the rows") -> Array:
        """The matrix x of a table; further columns of the table are ignored."""
        blocks = []
        for column in self.columns:
            if column.name not in table:
                raise UserError(
                    f"{where}: column {column.name!r} is missing, which the model needs; "
                    f"{nearest(column.name, table)}"
                )
            cells = table[column.name]
            empty = len(cells) > 1 and bool(missing_cells(cells).all())
            if empty and not any(name.endswith(" missing") for name in column.features):
                raise UserError(
                    f"{where}: column {column.name!r} is empty in all {len(cells)} rows, and in no "
                    "training row; fill it in"
                )
            try:
                blocks.append(column.encode(cells))
            except UserError as error:
                raise UserError(f"{where}: {error}") from None
        return np.concatenate(blocks, axis=1)

    def encode_labels(self, table: Mapping[str, Array], where: str = "the rows") -> Array:
        """The classes 0, 1, ... of a table's rows, or their label sets."""
        cells = label_cells(table, self.label, where)
        return cells if isinstance(self.label, tuple) else class_places(self.labels, cells, where)

    def unseen(self, table: Mapping[str, Array]) -> dict[str, int]:
        """For each column of categories: how many cells hold a value that is no known category."""
        found = {
            column.name: column.unseen(table[column.name])
            for column in self.columns
            if isinstance(column, CategoryEncoding)
        }
        return {name: count for name, count in found.items() if count}

    def state(self) -> dict[str, Any]:
        """The encoder as plain values: those that JSON text gives back."""
        held = {
            "columns": [column.state() for column in self.columns],
            "label": self.label,
            "labels": list(self.labels),
            "left_out": dict(self.left_out),
            "reading": asdict(self.reading),
            "id": self.id,
        }
        plain: dict[str, Any] = json.loads(json.dumps(held))
        return plain

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Encoder:
        """The encoder that gave this state."""
        columns = tuple(encoding_from_state(column) for column in state["columns"])
        return cls(
            columns=columns,
            label=as_label(state["label"]),
            labels=tuple(state["labels"]),
            left_out=dict(state["left_out"]),
            reading=Reading.from_state(state["reading"]),
            id=state["id"],
        )

    def to_json(self) -> str:
        """The state as JSON text; numbers keep all their digits."""
        return json.dumps(self.state(), indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Encoder:
        """The encoder whose state is this JSON text."""
        return cls.from_state(json.loads(text))


def fit_encoder(
    summaries: Mapping[str, Sequence[ColumnSummary]],
    rules: EncodingRules,
    label: LabelName = "",
    labels: Iterable[Any] = (),
    use: Sequence[str] = (),
    reading: Reading | None = None,
) -> Encoder:
    """The encoder of columns from their summaries at all sites, in the order of the mapping.

    Columns that look like ids are left out, but for those in `use`.
    """
    columns, left_out, ids = [], {}, []
    for name, parts in summaries.items():
        whole = joined(name, parts)
        if name not in use and looks_like_id(name, whole):
            left_out[name] = (
                "it looks like an id, all its values are different; list it in keep to use it"
            )
            ids.append(name)
        elif whole.kind == "text" and not whole.counts and not whole.dates:
            left_out[name] = "no site has enough rows with the same value"
        else:
            columns.append(fitted(name, whole, rules))
    if not columns:
        away = "".join(f"; {name} is left out: {why}" for name, why in left_out.items())
        raise UserError(f"no column is left beside the label; features are needed{away}")
    return Encoder(
        columns=tuple(columns),
        label=label,
        labels=class_names(labels),
        left_out=left_out,
        reading=reading or Reading(),
        id=next(iter(ids), ""),
    )
