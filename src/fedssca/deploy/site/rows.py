"""A site's rows, from raw columns to what a client takes: description and encoding."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from fedssca.data.dataset import Array, stratified
from fedssca.data.encode import (
    ColumnSummary,
    Encoder,
    EncodingRules,
    as_text,
    codes,
    fit_encoder,
    is_text,
    kinds_of,
    missing_cells,
    named_cells,
    summarise,
)
from fedssca.data.encode.misread import misread_numbers
from fedssca.deploy.census import Census, Facts, Question
from fedssca.deploy.site.raw_table import RawTable
from fedssca.errors import UserError
from fedssca.problem.constraints.cells import representatives

__all__ = ["SiteRows", "digest"]

MOST_GROUPS = 1000
"""The largest number of labels, or of groups for a constraint, that a site counts."""


class SiteRows:
    """The rows of one site in one run."""

    def __init__(self, table: RawTable, asked: Question) -> None:
        table = _prepared(table, asked["categories"], asked["drop"])
        self._table, self._asked = table, asked
        self._train: Array | None = None
        """Marks the training rows; None if all of them are, or if it is not known yet."""
        if table.test is None and table.y is not None:
            self._train = stratified(table.y, asked["test_fraction"], asked["seed"])
        for column in asked["extra"]:
            if column not in table.extra and (table.y is not None or not asked["columns"]):
                there = ", ".join(table.extra) or "none"
                raise UserError(
                    f"a constraint asks for column {column!r}, columns are: {there}; "
                    "change the constraint's column, or the site's table"
                )
        if table.y is None and not asked["columns"]:
            raise UserError(
                f"no label column: set label in site.toml to one of {', '.join(table.features)}"
            )
        if table.y is not None and missing_cells(table.y).any():
            row = int(np.flatnonzero(missing_cells(table.y))[0])
            raise UserError(f"the label is missing in row {row + 1}; leave out such rows")

    def facts(self) -> Facts:
        """What this site tells the server of its data."""
        table, asked, train = self._table, self._asked, self._train
        said: Facts = {
            "package": version("fedssca"),
            "rows": table.rows if train is None else int(train.sum()),
            "all_rows": table.rows,
            "held": table.test.rows if table.test else 0 if train is None else int((~train).sum()),
            "features": list(table.features),
            "array": table.x is not None,
            "dtype": "float32" if table.x is None else str(table.x.dtype),
            "scale": table.scale,
            "labels": None,
        }
        if table.y is not None:
            parts = [part.y for part in (table, table.test) if part and part.y is not None]
            said["labels"] = np.unique(np.concatenate(parts)).tolist()
            if len(said["labels"]) > MOST_GROUPS:
                raise UserError(
                    f"{len(said['labels'])} different labels: is that the column? "
                    "set label in site.toml"
                )
            beside = {name: _beside(table, name) for name in asked["extra"] if name in table.extra}
            said["extra"] = {
                name: kinds_of(cells) if is_text(cells) else None for name, cells in beside.items()
            }
            if asked["counted"]:
                said["counts"] = self._counts()
        if asked["columns"]:
            said["ids"] = digest(asked["run"], table.ids, table.test and table.test.ids)
            said["cells"] = _digest_of_cells(asked["run"], table)
            if table.y is not None:
                said["y"] = digest(asked["run"], table.y.astype(str), None)
                if train is not None:
                    said["test_rows"] = np.flatnonzero(~train).tolist()
        if not _used_as_is(table):
            summaries = self._summaries(alone=asked["columns"])
            if asked["columns"]:  # parties with columns encode their own columns themselves
                said["encoded"] = list(self._fitted(summaries).features)
            else:
                said["summaries"] = {name: each.state() for name, each in summaries.items()}
        elif table.x is not None and not table.scale:
            said["most"] = int(self._training(table.x).max(initial=0))
        return said

    def _summaries(self, alone: bool) -> dict[str, ColumnSummary]:
        """The counts and sums of every column."""
        rules, ids = EncodingRules(**self._asked["rules"]), self._table.x is None
        return {
            name: summarise(name, cells, self._train, rules, ids, alone)
            for name, cells in _raw_columns(self._table)
        }

    def _fitted(self, summaries: dict[str, ColumnSummary]) -> Encoder:
        """The encoder of a party that alone holds its columns."""
        rules = EncodingRules(**self._asked["rules"])
        parts = {name: [each] for name, each in summaries.items()}
        return fit_encoder(parts, rules, use=self._asked["extra"])

    def encoder(self, census: Census) -> Encoder | None:
        """How this site encodes its rows; None if x is an array that is only scaled.

        Sites with rows share the encoder of the census, parties with columns have their own.
        """
        if _used_as_is(self._table):
            return None
        if census.columns:
            return self._fitted(self._summaries(alone=True))
        assert census.encoder is not None
        return Encoder.from_state(census.encoder)

    def columns(self, census: Census) -> tuple[dict[str, Array], dict[str, Array]]:
        """The training and the test rows, encoded as the census says."""
        table = self._table
        if census.columns and self._train is None and table.test is None:
            self._train = ~np.isin(np.arange(table.rows), census.test_rows)
        encoder = self.encoder(census)
        whole = self._encoded(table, census, encoder)
        if table.test is not None:
            return whole, self._encoded(table.test, census, encoder)
        train = self._train
        assert train is not None
        return ({n: v[train] for n, v in whole.items()}, {n: v[~train] for n, v in whole.items()})

    def new(self, table: RawTable, census: Census) -> tuple[dict[str, Array], Facts]:
        """New rows, encoded as the training rows were, and what this site tells of them."""
        if table.features != self._table.features:
            raise UserError(f"the new rows have other columns: {', '.join(table.features[:5])}")
        ids = digest(self._asked["run"], table.ids, None)
        own = {"x": _features(table, self.encoder(census))}
        return own, {"rows": table.rows, "ids": ids}

    def _encoded(
        self, table: RawTable, census: Census, encoder: Encoder | None
    ) -> dict[str, Array]:
        out: dict[str, Array] = {"x": _features(table, encoder)}
        if table.y is not None:
            places = {label: place for place, label in enumerate(census.labels)}
            out["y"] = np.array([places[label] for label in table.y.tolist()], np.int32)
            out |= {
                name: codes(_beside(table, name), kinds) for name, kinds in census.extra.items()
            }
        return out

    def _training(self, values: Array) -> Array:
        return values if self._train is None else values[self._train]

    def _counts(self) -> list[list[Any]]:
        """The number of training rows of each combination of label and extra columns.

        A column of numbers that is divided into bins has one value for each bin.
        """
        table, bins = self._table, self._asked["bins"]
        assert table.y is not None
        beside = {
            name: _beside(table, name) for name in self._asked["extra"] if name in table.extra
        }
        binned = {
            name: representatives(values, bins[name])
            for name, values in beside.items()
            if name in bins and not is_text(values)
        }
        columns = [table.y, *(beside | binned).values()]
        parts = [np.unique(self._training(c), return_inverse=True) for c in columns]
        places = np.stack([inverse for _, inverse in parts])
        groups, counts = np.unique(places, axis=1, return_counts=True)
        if len(counts) > MOST_GROUPS:
            raise UserError(
                f"{len(counts)} groups to count, at most {MOST_GROUPS}: give the constraint's "
                "column of numbers bins = [...]"
            )
        return [
            [*(parts[i][0][place].item() for i, place in enumerate(group)), int(count)]
            for group, count in zip(groups.T, counts, strict=True)
        ]


def _beside(table: RawTable, name: str) -> Array:
    """A column that a constraint asks for."""
    cells = table.extra[name]
    if is_text(cells):
        return named_cells(cells)
    if missing_cells(cells).any():
        row = int(np.flatnonzero(missing_cells(cells))[0])
        raise UserError(f"a constraint's column {name!r} is missing in row {row + 1}; fill it in")
    return cells


def _features(table: RawTable, encoder: Encoder | None) -> Array:
    if encoder is not None:
        return encoder.encode(dict(_raw_columns(table)))
    assert table.x is not None
    return table.x if table.x.dtype != np.float64 else table.x.astype(np.float32)


def _prepared(table: RawTable, categories: Sequence[str], drop: Sequence[str]) -> RawTable:
    """The table with text in place of numbers that are codes, and without dropped features.

    Limits can still use the columns that are dropped.
    """
    for misread in misread_numbers(table.columns, (*categories, *drop), tell=False):
        raise UserError(misread)
    coded = {name: as_text(table.columns[name]) for name in categories if name in table.columns}
    used = {n: v for n, v in (table.columns | coded).items() if n not in drop}
    return table._replace(
        features=tuple(used) if table.x is None else table.features,
        columns=used,
        extra=table.extra | coded,
        test=table.test and _prepared(table.test, categories, drop),
    )


def _raw_columns(table: RawTable) -> list[tuple[str, Array]]:
    if table.x is None:
        return list(table.columns.items())
    return [(name, table.x[:, j]) for j, name in enumerate(table.features)]


def _used_as_is(table: RawTable) -> bool:
    """Whether x is an array that the model only scales."""
    return table.x is not None and bool(table.scale or table.x.dtype == np.uint8)


def _digest_of_cells(run: str, table: RawTable) -> str:
    """A digest of the cells that decide how a party encodes its columns."""
    hasher = hashlib.sha256(run.encode())
    for name, cells in _raw_columns(table):
        hasher.update(name.encode() + b"\0" + np.ascontiguousarray(cells).tobytes())
    return hasher.hexdigest()


def digest(run: str, values: Any, more: Any) -> str:
    """A digest of a column in its order; digests of different runs cannot be compared."""
    text = "\0".join([run, *map(str, values), *(() if more is None else map(str, more))])
    return hashlib.sha256(text.encode()).hexdigest()
