"""Raw data: the columns of a table as they were read, before they are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedssca.data.classes import Label
from fedssca.data.dataset import (
    Array,
    Dataset,
    check_keep,
    columns_beside,
    in_train,
    numbered_labels,
)
from fedssca.data.encode import EncodingRules, fit_encoder, summarise
from fedssca.data.lines import Reading
from fedssca.errors import UserError

__all__ = ["RawData", "from_table"]


@dataclass(frozen=True)
class RawData:
    """Raw columns of all rows, and which of the rows are for training."""

    name: str
    table: dict[str, Array]
    """The columns that may become features: numbers or text."""
    label: str
    """The name of the label column."""
    y: Array
    """(N,) the classes of the rows, int32."""
    labels: tuple[Label, ...]
    """The values of the label that the classes stand for."""
    train: Array
    """(N,) marks the training rows."""
    keep: tuple[str, ...] = ()
    """Columns that also stand beside x."""
    positive: int | None = None
    """The class that rates are about, if the data set itself defines one."""
    reading: Reading = field(default_factory=Reading)
    """How further files with raw rows are read."""
    notes: tuple[str, ...] = ()
    """What was decided while reading and the user should know."""

    def encoded(self, rules: EncodingRules | None = None) -> Dataset:
        """Fit the encoder to the training rows, and encode all rows with it."""
        rules = rules or EncodingRules()
        try:
            summaries = {
                column: [summarise(column, cells, self.train, rules)]
                for column, cells in self.table.items()
            }
            encoder = fit_encoder(
                summaries, rules, self.label, self.labels, self.keep, self.reading
            )
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from None
        beside, kinds = columns_beside(self.name, self.table, self.keep)
        columns = {"x": encoder.encode(self.table, self.name), "y": self.y, **beside}
        parts = (self.train, ~self.train)
        own, held = ({name: v[rows] for name, v in columns.items()} for rows in parts)
        left_out = (f"column {c!r} is left out: {why}" for c, why in encoder.left_out.items())
        return Dataset(
            name=self.name,
            train=own,
            test=held,
            classes=len(self.labels),
            scale=1.0,
            features=encoder.features,
            labels=self.labels,
            kinds=kinds,
            positive=self.positive,
            encoder=encoder,
            notes=(*self.notes, *left_out),
        )


def from_table(
    name: str,
    table: Mapping[str, Array],
    label: str,
    fraction: float,
    seed: int,
    keep: Sequence[str] = (),
    train_rows: int | None = None,
) -> RawData:
    """Make raw data from the columns of a table, the label among them.

    The first `train_rows` are for training; if None, `fraction` of each class is set aside for
    testing.
    """
    raw = {column: cells for column, cells in table.items() if column != label}
    check_keep(name, keep, list(raw))
    if not raw:
        raise UserError(
            f"{name}: no column is left beside the label {label!r}; features are needed"
        )
    y, labels = numbered_labels(name, table[label])
    train = np.arange(len(y)) < train_rows if train_rows else in_train(name, y, fraction, seed)
    return RawData(name, raw, label, y, labels, train, tuple(keep))
