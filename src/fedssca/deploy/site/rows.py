"""A site's rows, from raw columns to what a client takes: description and encoding."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from fedssca.data.calibration import calibration_rows
from fedssca.data.dataset import Array, stratified
from fedssca.data.encode import (
    ColumnSummary,
    Encoder,
    EncodingRules,
    Telling,
    codes,
    fit_encoder,
    is_text,
    summarise,
)
from fedssca.deploy.census import OTHER, TARGET, Census, Facts, Question
from fedssca.deploy.site.feature_table import (
    coded_table,
    raw_columns,
    used_as_is,
    with_features,
)
from fedssca.deploy.site.group_cells import (
    GroupCount,
    counted,
    extra_cells,
    group_cells,
    known_cells,
    places_of,
)
from fedssca.deploy.site.labels import SiteLabels
from fedssca.deploy.site.raw_table import RawTable
from fedssca.deploy.site.refusal import LimitRefused
from fedssca.errors import UserError
from fedssca.problem.weights import SAMPLE_WEIGHT, sample_weights
from fedssca.run.schema import SiteLimits

__all__ = ["SiteRows", "digest"]

DIVISION = 0
"""The seed by which a site sets rows aside; no run can choose others."""


class SiteRows:
    """The rows of one site in one run."""

    def __init__(self, table: RawTable, asked: Question, limits: SiteLimits) -> None:
        table = with_features(coded_table(table, asked["categories"], asked["drop"]), limits)
        self._table, self._asked, self._limits = table, asked, limits
        self._telling = Telling(limits.least_rows, limits.most_kinds)
        self._labels = SiteLabels(asked, self._telling)
        self._train: Array | None = None
        """Marks the training rows; None if all of them are, or if it is not known yet."""
        self._aside = np.zeros(table.rows, bool)
        """Marks the calibration rows."""
        train = None
        if table.test is None and table.y is not None:
            train = stratified(self._labels.strata(table.y), asked["test_fraction"], DIVISION)
        self._divide(train)
        needed = dict.fromkeys(asked["extra"], "a constraint")
        needed |= dict.fromkeys(filter(None, [asked["weight"]]), "data.weight")
        for column, what in needed.items():
            if column not in table.extra and (table.y is not None or not asked["columns"]):
                there = ", ".join(table.extra) or "none"
                raise UserError(
                    f"{what} asks for column {column!r}, columns are: {there}; "
                    "change that column, or the site's table"
                )
        if table.y is None and not asked["columns"]:
            raise UserError(
                f"no label column: set label in site.toml to one of {', '.join(table.features)}"
            )
        for y in self._all_labels:
            self._labels.check(y)
        self._check_sizes()

    def _divide(self, train: Array | None) -> None:
        """Set calibration rows aside from the rows for training; None: all rows are."""
        self._train, fraction = train, self._asked["calibration_fraction"]
        if fraction:
            rows, ids = self._table.rows, self._table.ids
            marks = calibration_rows(rows, fraction, DIVISION, ids)
            self._aside = marks if train is None else marks & train
            self._train = ~self._aside if train is None else train & ~self._aside

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of training rows and of test rows, as far as they are known."""
        table, train = self._table, self._train
        rows = table.rows if train is None else int(train.sum())
        return rows, table.test.rows if table.test else table.rows - rows - int(self._aside.sum())

    def _check_sizes(self) -> None:
        least = self._limits.least_rows
        rows, held = self.sizes
        for what, count, key in (
            ("training", rows or -1, "test_fraction"),
            ("test", held, "test_fraction"),
            ("calibration", int(self._aside.sum()), "calibration_fraction"),
        ):
            if count < least and count:
                raise LimitRefused(
                    "limits.least_rows",
                    least,
                    f"the run would leave fewer {what} rows (data.{key})",
                )

    def set_of_rows(self) -> str:
        """Identifies the rows that a census counts: their contents, and which are for training."""
        division: tuple[Any, ...] = (self._asked["test_fraction"], self.sizes)
        if self._asked["calibration_fraction"]:
            division += (self._asked["calibration_fraction"],)
        hasher = hashlib.sha256(repr(division).encode())
        for part in (self._table, self._table.test):
            if part is None:
                continue
            for name, cells in [*raw_columns(part), *part.extra.items()]:
                hasher.update(f"{name}:{cells.dtype}:{len(cells)}".encode())
                hasher.update(np.ascontiguousarray(cells).tobytes())
            if part.y is not None:
                hasher.update("\0".join(map(str, part.y.tolist())).encode())
        return hasher.hexdigest()

    def facts(self) -> Facts:
        """What this site tells the server of its data, whether sums are hidden or not."""
        table, asked = self._table, self._asked
        rows, held = self.sizes
        said: Facts = {
            "package": version("fedssca"),
            "rows": rows,
            "all_rows": table.rows,
            "held": held,
            "features": list(table.features),
            "array": table.x is not None,
            "dtype": "float32" if table.x is None else str(table.x.dtype),
            "scale": table.scale,
            "labelled": table.y is not None,
        }
        if asked["calibration_fraction"]:
            said["calibration"] = int(self._aside.sum())
        if asked["columns"]:
            said["ids"] = digest(asked["run"], table.ids, table.test and table.test.ids)
            said["cells"] = _digest_of_cells(asked["run"], table)
            if table.y is not None:
                for each in self._labels.summary(table.y, self._train).values():
                    said["target"] = each.state()
                said["y"] = digest(asked["run"], table.y.astype(str), None)
                if self._train is not None:
                    said["test_rows"] = np.flatnonzero(~self._train & ~self._aside).tolist()
            if not used_as_is(table):  # parties with columns encode their own columns themselves
                encoder = self._fitted(self.summaries())
                said["encoded"] = list(encoder.features)
                if asked["embeds"]:
                    said["categories"] = [list(own) for own in encoder.category_places]
            elif not table.scale:
                said["most"] = self.most
        return said

    def told(self) -> Facts:
        """What this site tells besides, if sums are not hidden."""
        said: Facts = {"labels": self.labels, "groups": self.groups}
        if not self._asked["columns"]:
            said["summaries"] = {name: each.state() for name, each in self.summaries().items()}
            if self.takes_most:
                said["most"] = self.most
        return said

    @property
    def labels(self) -> list[Any]:
        """The labels that enough rows have."""
        return self._labels.told(self._all_labels) if self._table.y is not None else []

    @property
    def _all_labels(self) -> list[Array]:
        """The labels of the rows and of test rows of their own."""
        parts = (self._table, self._table.test)
        return [part.y for part in parts if part is not None and part.y is not None]

    @property
    def groups(self) -> dict[str, list[Any]]:
        """For each column that constraints ask for: the values that enough rows have.

        Other values are joined to one, called "other", in columns of text. A column of numbers that
        is divided into bins has one value for each bin.
        """
        told = {}
        for name in self._asked["extra"]:
            if self._table.y is not None and name in self._table.extra:
                cells = group_cells(self._table, name, self._asked["bins"])
                found = Counter(cells.tolist())
                often = [kind for kind in found if found[kind] >= self._telling.least]
                if is_text(cells):
                    often = sorted(often, key=lambda kind: (-found[kind], kind))
                    often = often[: self._limits.most_kinds]
                    often += [OTHER] if len(often) < len(found) and OTHER not in often else []
                told[name] = sorted(often)
        return told

    @property
    def most(self) -> int:
        """The largest number in an array of bytes that at least `least_rows` rows reach."""
        table = self._table
        assert table.x is not None
        top = np.sort(self._training(table.x).max(axis=1, initial=0))
        return int(top[-self._telling.least]) if len(top) >= self._telling.least else 0

    @property
    def takes_most(self) -> bool:
        """Whether x is an array of bytes whose largest number the run needs."""
        return used_as_is(self._table) and not self._table.scale

    def summaries(self) -> dict[str, ColumnSummary]:
        """The counts and sums of every column; none if x is an array that is only scaled."""
        if used_as_is(self._table):
            return self._labels.summary(self._table.y, self._train)
        rules, ids = EncodingRules(**self._asked["rules"]), self._table.x is None
        alone = bool(self._asked["columns"])
        return {
            name: summarise(name, cells, self._train, rules, ids, alone, self._telling)
            for name, cells in raw_columns(self._table)
        } | self._labels.summary(self._table.y, self._train)

    def _fitted(self, summaries: dict[str, ColumnSummary]) -> Encoder:
        """The encoder of a party that alone holds its columns."""
        rules = EncodingRules(**self._asked["rules"])
        parts = {name: [each] for name, each in summaries.items() if name != TARGET}
        return fit_encoder(parts, rules, use=self._asked["extra"])

    def encoder(self, census: Census) -> Encoder | None:
        """How this site encodes its rows; None if x is an array that is only scaled.

        Sites with rows share the encoder of the census, parties with columns have their own.
        """
        if used_as_is(self._table):
            return None
        if census.columns:
            return self._fitted(self.summaries())
        assert census.encoder is not None
        return Encoder.from_state(census.encoder)

    def columns(self, census: Census) -> tuple[dict[str, Array], ...]:
        """The training, the test and the calibration rows, encoded as the census says."""
        table = self._table
        if census.columns and table.y is None and table.test is None:
            self._divide(~np.isin(np.arange(table.rows), census.test_rows))
        encoder = self.encoder(census)
        whole = self._encoded(table, census, encoder)
        train = np.ones(table.rows, bool) if self._train is None else self._train

        def part(rows: Array) -> dict[str, Array]:
            return {name: values[rows] for name, values in whole.items()}

        aside = part(self._aside) if self._aside.any() else {}
        if table.test is not None:
            own = whole if self._train is None else part(train)
            return own, self._encoded(table.test, census, encoder), aside
        return part(train), part(~train & ~self._aside), aside

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
            out["y"] = self._labels.encode(table.y, census)
            out |= {
                name: codes(known_cells(extra_cells(table, name), kinds, name), kinds)
                for name, kinds in census.extra.items()
            }
            if name := self._asked["weight"]:
                out[SAMPLE_WEIGHT] = sample_weights(f"column {name!r}", table.extra[name])
        return out

    def _training(self, values: Array) -> Array:
        return values if self._train is None else values[self._train]

    def _classed(self, table: RawTable) -> RawTable:
        """The table with the label by which each row is counted."""
        return table._replace(y=None if table.y is None else self._labels.counted(table.y))

    def counts(
        self, labels: Sequence[Any], groups: Mapping[str, Sequence[Any]]
    ) -> list[GroupCount]:
        """The number of training rows of each combination of label and groups.

        No combination may have fewer than `least_rows` rows, unless it has none.
        """
        whole = places_of(self._classed(self._table), labels, groups, self._asked["bins"])
        return counted(self._training(whole), self._telling.least)

    def check_other_rows(self, labels: Sequence[Any], groups: Mapping[str, Sequence[Any]]) -> None:
        """Refuse if a combination has few test or calibration rows: sums over them are sent."""
        whole = places_of(self._classed(self._table), labels, groups, self._asked["bins"])
        counted(whole[self._aside], self._telling.least)
        if self._table.test is not None:
            held = places_of(self._classed(self._table.test), labels, groups, self._asked["bins"])
        elif self._train is not None:
            held = whole[~self._train & ~self._aside]
        else:
            return
        counted(held, self._telling.least)


def _features(table: RawTable, encoder: Encoder | None) -> Array:
    if encoder is not None:
        return encoder.encode(dict(raw_columns(table)))
    assert table.x is not None
    return table.x if table.x.dtype != np.float64 else table.x.astype(np.float32)


def _digest_of_cells(run: str, table: RawTable) -> str:
    """A digest of the cells that decide how a party encodes its columns."""
    hasher = hashlib.sha256(run.encode())
    for name, cells in raw_columns(table):
        hasher.update(name.encode() + b"\0" + np.ascontiguousarray(cells).tobytes())
    return hasher.hexdigest()


def digest(run: str, values: Any, more: Any) -> str:
    """A digest of a column in its order; digests of different runs cannot be compared."""
    text = "\0".join([run, *map(str, values), *(() if more is None else map(str, more))])
    return hashlib.sha256(text.encode()).hexdigest()
