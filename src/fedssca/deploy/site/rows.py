"""A site's rows, from raw columns to what a client takes: description and encoding."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from fedssca.data.dataset import Array, stratified
from fedssca.data.encode import codes, encode, is_text, joined_moments, kinds_of, partial_moments
from fedssca.deploy.census import Census, Facts, Question
from fedssca.deploy.site.raw_table import RawTable
from fedssca.errors import UserError

__all__ = ["SiteRows", "digest"]

MOST_GROUPS = 1000
"""The largest number of labels, or of groups for a constraint, that a site counts."""


class SiteRows:
    """The rows of one site in one run."""

    def __init__(self, table: RawTable, asked: Question) -> None:
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
            said["extra"] = {
                name: kinds_of(table.extra[name]) if is_text(table.extra[name]) else None
                for name in asked["extra"]
                if name in table.extra
            }
            if asked["counted"]:
                said["counts"] = self._counts()
        if asked["columns"]:
            said["ids"] = digest(asked["run"], table.ids, table.test and table.test.ids)
            if table.y is not None:
                said["y"] = digest(asked["run"], table.y.astype(str), None)
                if train is not None:
                    said["test_rows"] = np.flatnonzero(~train).tolist()
        if table.x is not None and not table.scale and _bytes(table):
            said["most"] = int(self._training(table.x).max(initial=0))
        elif not (table.x is not None and table.scale):
            kinds, moments = self._measured(asked["columns"])
            said["kinds"] = kinds
            if not asked["columns"]:  # parties with columns encode their own columns themselves
                said["moments"] = moments
        return said

    def _measured(self, alone: bool) -> tuple[dict[str, list[str]], dict[str, list[float]]]:
        """The kinds of text, and the partial moments of numbers.

        A site that alone holds a column takes the kinds from its test rows too.
        """
        raw = _raw_columns(self._table)
        return (
            {n: kinds_of(v if alone else self._training(v)) for n, v in raw if is_text(v)},
            {n: partial_moments(self._training(v)) for n, v in raw if not is_text(v)},
        )

    def columns(self, census: Census) -> tuple[dict[str, Array], dict[str, Array]]:
        """The training and the test rows, encoded as the census says."""
        table = self._table
        if census.columns and self._train is None and table.test is None:
            self._train = ~np.isin(np.arange(table.rows), census.test_rows)
        census = self._own_encoding(census)
        whole = self._encoded(table, census)
        if table.test is not None:
            return whole, self._encoded(table.test, census)
        train = self._train
        assert train is not None
        return ({n: v[train] for n, v in whole.items()}, {n: v[~train] for n, v in whole.items()})

    def new(self, table: RawTable, census: Census) -> tuple[dict[str, Array], Facts]:
        """New rows, encoded as the training rows were, and what this site tells of them."""
        if table.features != self._table.features:
            raise UserError(f"the new rows have other columns: {', '.join(table.features[:5])}")
        ids = digest(self._asked["run"], table.ids, None)
        own = {"x": _features(table, self._own_encoding(census))}
        return own, {"rows": table.rows, "ids": ids}

    def _own_encoding(self, census: Census) -> Census:
        """The census with this site's own kinds and moments, where parties hold columns."""
        if not census.columns or _used_as_is(self._table):
            return census
        kinds, moments = self._measured(alone=True)
        own = {name: joined_moments([part]) for name, part in moments.items()}
        return replace(census, kinds=kinds, moments=own)

    def _encoded(self, table: RawTable, census: Census) -> dict[str, Array]:
        out: dict[str, Array] = {"x": _features(table, census)}
        if table.y is not None:
            places = {label: place for place, label in enumerate(census.labels)}
            out["y"] = np.array([places[label] for label in table.y.tolist()], np.int32)
            out |= {name: codes(table.extra[name], kinds) for name, kinds in census.extra.items()}
        return out

    def _training(self, values: Array) -> Array:
        return values if self._train is None else values[self._train]

    def _counts(self) -> list[list[Any]]:
        """The number of training rows of each combination of label and extra columns."""
        table = self._table
        assert table.y is not None
        columns = [table.y, *(table.extra[n] for n in self._asked["extra"] if n in table.extra)]
        parts = [np.unique(self._training(c), return_inverse=True) for c in columns]
        places = np.stack([inverse for _, inverse in parts])
        groups, counts = np.unique(places, axis=1, return_counts=True)
        if len(counts) > MOST_GROUPS:
            raise UserError(f"{len(counts)} groups to count: a constraint's column has few values")
        return [
            [*(parts[i][0][place].item() for i, place in enumerate(group)), int(count)]
            for group, count in zip(groups.T, counts, strict=True)
        ]


def _features(table: RawTable, census: Census) -> Array:
    if table.x is not None and _used_as_is(table):
        return table.x if table.x.dtype != np.float64 else table.x.astype(np.float32)
    return encode(_raw_columns(table), census.kinds, census.moments)


def _raw_columns(table: RawTable) -> list[tuple[str, Array]]:
    if table.x is None:
        return list(table.columns.items())
    return [(name, table.x[:, j]) for j, name in enumerate(table.features)]


def _used_as_is(table: RawTable) -> bool:
    """Whether x is an array that the model only scales."""
    return table.x is not None and bool(table.scale or _bytes(table))


def _bytes(table: RawTable) -> bool:
    return table.x is not None and table.x.dtype == np.uint8


def digest(run: str, values: Any, more: Any) -> str:
    """A digest of a column in its order; digests of different runs cannot be compared."""
    text = "\0".join([run, *map(str, values), *(() if more is None else map(str, more))])
    return hashlib.sha256(text.encode()).hexdigest()
