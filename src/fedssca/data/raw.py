"""Raw data: the columns of a table as they were read, before they are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedssca.data.classes import Label
from fedssca.data.dataset import (
    Array,
    Dataset,
    check_keep,
    columns_beside,
    in_train,
    numbered_target,
    stratified,
)
from fedssca.data.encode import (
    Encoder,
    EncodingRules,
    TargetKind,
    TargetScale,
    fit_encoder,
    is_text,
    stacked,
    summarise,
)
from fedssca.data.encode.label_sets import has_label
from fedssca.data.encode.labels import LabelName, class_places, label_cells, label_columns
from fedssca.data.encode.targets import NAMED, strata_of, target_scale
from fedssca.data.lines import Reading
from fedssca.errors import UserError, nearest

__all__ = ["RawData", "from_table"]


@dataclass(frozen=True)
class RawData:
    """Raw columns of all rows, and which of the rows are for training."""

    name: str
    table: dict[str, Array]
    """The columns that may become features: numbers or text."""
    label: LabelName
    """The name of the label column, or the names of several labels."""
    y: Array
    """(N,) the classes or label sets of the rows, int32; of a target of numbers float64."""
    labels: tuple[Label, ...]
    """The values of the label that the classes stand for, or the names of several labels."""
    train: Array
    """(N,) marks the training rows."""
    keep: tuple[str, ...] = ()
    """Columns that also stand beside x."""
    drop: tuple[str, ...] = ()
    """Columns of the table that stand beside x and are no features."""
    positive: int | None = None
    """The class that rates are about, if the data set itself defines one."""
    reading: Reading = field(default_factory=Reading)
    """How further files with raw rows are read."""
    id: str = ""
    """The column that identified the rows; it is not in the table."""
    ids: Array | None = None
    """The ids of the rows that are not test rows of their own; None: they have none."""
    owners: Array | None = None
    """(N,) the client of each row, if clients have files of their own; -1 where it has none."""
    clients: tuple[str, ...] = ()
    """The names of these clients."""
    aside: Array | None = None
    """(N,) marks training rows that are set aside as calibration rows; None: no row is."""
    parties: dict[str, int] = field(default_factory=dict)
    """The party of each column, if parties have files of their own."""
    notes: tuple[str, ...] = ()
    """What was decided while reading and the user should know."""
    kind: TargetKind = "class"
    """What the label holds."""
    weight: str = ""
    """The column with sample weights; it stands beside x and is no feature."""

    def encoder(self, rules: EncodingRules) -> Encoder:
        """The encoder, fitted to the training rows without calibration rows."""
        try:
            summaries = {
                column: [summarise(column, cells, self._fitted, rules)]
                for column, cells in self.table.items()
                if column not in (*self.drop, self.weight)
            }
            made = fit_encoder(summaries, rules, self.label, self.labels, self.keep, self.reading)
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from None
        left_out = made.left_out | dict.fromkeys(self.drop, "it is dropped, and only limits use it")
        return replace(made, id=self.id or made.id, left_out=left_out)

    @property
    def label_columns(self) -> dict[str, Array]:
        """The label of every row as the table has it: the name of its class, or its number.

        Of several labels each has a column of zeros and ones.
        """
        if isinstance(self.label, tuple):
            return {name: has_label(self.y, k).astype(int) for k, name in enumerate(self.label)}
        return {self.label: self.y if self.kind != "class" else np.array(self.labels)[self.y]}

    @property
    def _fitted(self) -> Array:
        """Marks the training rows without calibration rows."""
        return self.train if self.aside is None else self.train & ~self.aside

    def target(self) -> TargetScale | None:
        """The unit of a target of numbers, from the same rows; None: the label is a name."""
        if self.kind in NAMED:
            return None
        found = summarise("the target", self.y, self._fitted, EncodingRules())
        return target_scale(self.name, found.moments, self.kind)

    def encoded(self, rules: EncodingRules | None = None) -> Dataset:
        """Encode all rows with the encoder of the training rows."""
        encoder, target = self.encoder(rules or EncodingRules()), self.target()
        beside, kinds = columns_beside(self.name, self.table, self.keep)
        y = self.y if target is None else target.encode(self.y)
        columns = {"x": encoder.encode(self.table, self.name), "y": y, **beside}
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
            owners=None if self.owners is None else self.owners[self.train],
            test_owners=self.test_owners,
            aside=None if self.aside is None else self.aside[self.train],
            clients=self.clients,
            blocks=self._blocks(encoder),
            notes=(*self.notes, *left_out),
            target=target,
            sets=self.kind == "labels",
        )

    @property
    def test_owners(self) -> Array | None:
        """The client of each test row; None if they are those of a file of their own."""
        held = None if self.owners is None else self.owners[~self.train]
        return None if held is None or (held < 0).any() else held

    def _blocks(self, encoder: Encoder) -> tuple[Array, ...] | None:
        """The features of each party, if parties have files of their own."""
        if not self.parties:
            return None
        holders = np.repeat(
            [self.parties[column.name] for column in encoder.columns],
            [len(column.features) for column in encoder.columns],
        )
        return tuple(np.flatnonzero(holders == i) for i in range(1 + max(self.parties.values())))


def from_table(
    name: str,
    table: Mapping[str, Array],
    label: LabelName,
    fraction: float,
    seed: int,
    keep: Sequence[str] = (),
    test: Mapping[str, Array] | None = None,
    owners: Array | None = None,
    kind: TargetKind = "class",
) -> RawData:
    """Make raw data from the columns of a table, the label among them, which holds this `kind`.

    Without `test` rows, `fraction` of each class is set aside for testing, at each of the `owners`
    of the rows if they have several.
    """
    _, columns = label_columns(table, label, name)
    raw = {called: cells for called, cells in table.items() if called not in columns}
    check_keep(name, keep, list(raw))
    if not raw:
        raise UserError(
            f"{name}: no column is left beside the label {label!r}; features are needed"
        )
    y, labels = numbered_target(name, label_cells(table, label, name), kind)
    if isinstance(label, tuple):
        labels = label
    if test is None:
        strata = strata_of(y, kind)
        return RawData(
            name,
            raw,
            label,
            y,
            labels,
            _in_train(name, strata, fraction, seed, owners),
            tuple(keep),
            owners=owners,
            kind=kind,
        )
    where = f"{name}, test rows"
    both: dict[str, Array] = {}
    for called, cells in raw.items():
        if called not in test:
            raise UserError(f"{where}: column {called!r} is missing; {nearest(called, test)}")
        whole = stacked([cells, test[called]])
        if whole is None:
            here, there = ("text", "numbers") if is_text(test[called]) else ("numbers", "text")
            raise UserError(
                f"{where}: column {called!r} is {here} here and {there} in the training rows; "
                "write it alike"
            )
        both[called] = whole
    cells = label_cells(test, label, where)
    if kind == "class":
        held = class_places(labels, cells, where)
    else:
        held, _ = numbered_target(where, cells, kind)
    train = np.arange(len(y) + len(held)) < len(y)
    if owners is not None:
        owners = np.concatenate([owners, np.full(len(held), -1, owners.dtype)])
    return RawData(
        name,
        both,
        label,
        np.concatenate([y, held]),
        labels,
        train,
        tuple(keep),
        owners=owners,
        kind=kind,
    )


def _in_train(name: str, y: Array, fraction: float, seed: int, owners: Array | None) -> Array:
    """Mark the training rows; each owner sets aside its own, as sites do."""
    if owners is None:
        return in_train(name, y, fraction, seed)
    train = stratified(y, fraction, seed, owners)
    if train.all():
        raise UserError(
            f"{name}: no client has enough rows to set aside {fraction:g} of each class for "
            f"testing (rows: {len(y)}, clients: {len(np.unique(owners))}); give test_path, a "
            "larger test_fraction or fewer clients"
        )
    return train
