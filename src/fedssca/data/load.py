"""Data sets by name, from a CSV, NPZ or Parquet file, or from a folder of NPY files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedssca.data.arrays import aligned
from fedssca.data.dataset import Dataset, check, from_arrays
from fedssca.data.encode import EncodingRules, TargetKind, as_text
from fedssca.data.encode.labels import (
    USUAL,
    LabelName,
    as_label,
    label_cells,
    label_columns,
    label_sources,
)
from fedssca.data.encode.misread import misread_numbers
from fedssca.data.files import (
    JoinedFiles,
    by_column,
    expanded,
    is_pattern,
    join_columns,
    several,
    stack_rows,
)
from fedssca.data.lines import Reading, is_number
from fedssca.data.mapped import mapped
from fedssca.data.named import NAMES, ready_made
from fedssca.data.raw import RawData, from_table
from fedssca.data.sql import read_query
from fedssca.data.tables import Table, is_table, read_arrays, read_table, table_name
from fedssca.errors import UserError, nearest

__all__ = ["NAMES", "DataSource", "encoded", "load"]


@dataclass(frozen=True)
class DataSource:
    """Where the rows of a run come from; `load` explains the fields."""

    name: str | None = None
    path: str | Sequence[str] | None = None
    directory: Path | None = None
    label: LabelName | None = None
    test_fraction: float = 0.2
    seed: int = 0
    keep: Sequence[str] = ()
    test_path: str | None = None
    id: str = ""
    drop: Sequence[str] = ()
    categories: Sequence[str] = ()
    reading: Reading = field(default_factory=Reading)
    query: tuple[str, str] | None = None
    """The address of a database and the SQL query that gives the rows."""
    split: str = "sample"
    """Whether several files hold different rows ("sample") or columns ("feature")."""
    kind: TargetKind = "class"
    """What the label holds: a class, several labels at once, a number or a count."""
    weight: str = ""
    """The column with sample weights, which is no feature and is kept beside x."""
    client: str = ""
    """The column that names the client of each row, which is no feature."""
    label_optional: bool = False
    """Whether a table may be read without a label, to be looked at and not to train."""

    def read(self) -> RawData | Dataset:
        """Read the rows: raw columns that are not encoded yet, or arrays."""
        if (self.name is None) == (self.path is None) and not self.query:
            raise UserError(
                f"give either data.name or data.path; got {self.name!r} and {self.path!r}"
            )
        if not 0 < self.test_fraction < 1:
            raise UserError(f"test_fraction is {self.test_fraction}; it should lie between 0 and 1")
        if isinstance(self.label, str) and self.name is not None:
            raise UserError(
                f"label {self.label!r} goes with data.path; {self.name} has its own label"
            )
        if isinstance(self.label, tuple) != (self.kind == "labels"):
            raise UserError(
                "several labels at once are a list of labels: give data.label = [...] and "
                'problem.task = "multilabel" together'
            )
        if self.weight and self.name is not None:
            raise UserError(f"data.weight = {self.weight!r} goes with data.path, not {self.name}")
        if self.name is not None:
            self._check_no_table(f"{self.name} is a ready-made data set")
            return ready_made(
                self.name,
                self.directory,
                self.test_fraction,
                self.seed,
                self.keep,
                self.kind,
                self.label,
            )
        if self.query:
            table = read_query(*self.query, self.reading, self.id)
            return self._raw("query", JoinedFiles(table, None, {}))
        return self._files()

    def _files(self) -> RawData | Dataset:
        named = [self.path] if isinstance(self.path, str) else list(self.path or ())
        paths = expanded(named)
        if len(paths) > 1 and self.split == "feature":
            return self._raw(several(paths), join_columns(paths, self.id, self.reading))
        own = is_pattern(named[0]) and is_table(paths[0]) and self.split == "sample"
        if len(paths) > 1 or own:  # a pattern means one client per file, be it one file
            joined = stack_rows(paths, self.reading, self._away, self.label)
            return self._raw(several(paths), joined)
        (path,) = paths
        if path.is_dir() or path.suffix.lower() == ".npz":
            self._check_no_table(f"{path} holds arrays without names of columns")
        if path.is_dir() and not (path / "x.npy").exists():
            endings = {file.suffix for file in path.iterdir() if is_table(file)}
            for ending in sorted(endings):
                raise UserError(
                    f"{path} is a folder of tables: data.path = '{path}/*{ending}' takes each of "
                    "its files as a client"
                )
        if path.is_dir():
            target = self.label if isinstance(self.label, str) else "y"
            return mapped(path, target, self.keep, self.kind)
        if not path.is_file():
            raise UserError(
                f"{path} is not there; data.path should name a .csv, .npz or .parquet file, or a "
                "folder of .npy files"
            )
        if path.suffix.lower() == ".npz":
            train, test = _npz(path, self.label or "y", self.keep)
            x = train["x"]
            scale = 1 / max(1, int(x.max(initial=0))) if x.dtype == np.uint8 else None
            rest = (self.test_fraction, self.seed, self.keep, self.kind, self.label or "y")
            return from_arrays(path.stem, train, test, scale, *rest)
        if not is_table(path):
            raise UserError(f"{path} ends in {path.suffix!r}; it should be .csv, .npz or .parquet")
        return self._raw(table_name(path), JoinedFiles(read_table(path, self.reading), None, {}))

    def _check_no_table(self, why: str) -> None:
        """Refuse settings that are about the columns of a table."""
        given = {
            "test_path": self.test_path,
            "id": self.id,
            "client": self.client,
            "drop": self.drop,
            "categories": self.categories,
            "columns": self.reading.columns,
            "missing": self.reading.missing,
        }
        for key, value in given.items():
            if value:
                raise UserError(f"data.{key} is about the columns of a table, and {why}")

    def _raw(self, name: str, joined: JoinedFiles) -> RawData:
        """The raw data of a table, without the columns that are dropped."""
        self._check_columns(name, joined)
        if self.client:
            joined = by_column(name, joined, self.client)
        table = self._without(joined.table)
        if self.label_optional and not self.label and not any(c in table for c in USUAL):
            rows = len(next(iter(table.values())))
            y, everyone = np.zeros(rows, np.int32), np.ones(rows, bool)
            misread = tuple(misread_numbers(table, (*self.categories, *self.drop)))
            return RawData(name, table, "", y, (), everyone, owners=joined.owners, notes=misread)
        label, columns = self._label(name, table)
        misread = tuple(misread_numbers(table, (*columns, *self.categories, *self.drop)))
        if misread and not self.label_optional:
            raise UserError(f"{name}: {misread[0]}")
        test = None
        if self.test_path:
            paths = expanded([self.test_path])
            held = stack_rows(paths, self.reading, self._away).table if len(paths) > 1 else None
            test = self._without(held or read_table(paths[0], self.reading))
        raw = from_table(
            name,
            table,
            label,
            self.test_fraction,
            self.seed,
            self.keep,
            test,
            joined.owners,
            self.kind,
        )
        notes = (*raw.notes, *joined.notes, *misread)
        return dataclasses.replace(
            raw,
            reading=self.reading,
            parties=joined.parties,
            clients=joined.clients,
            notes=notes,
            id=self.id,
            drop=tuple(column for column in self.drop if column in raw.table),
            weight=self.weight,
            ids=as_text(joined.table[self.id]) if self.id in joined.table else None,
        )

    def _check_columns(self, name: str, joined: JoinedFiles) -> None:
        """Refuse names that no column has, and columns that are asked for and left out."""
        single = filter(None, [self.id, self.weight, self.client])
        for column in (*self.drop, *self.categories, *single):
            known = joined.left_out | joined.table.keys()
            if column not in known and not (joined.parties and column == self.id):
                raise UserError(f"{name} has no column {column!r}; {nearest(column, joined.table)}")
        labels = (label_sources(self.label, joined.table) or ()) if self.label else ()
        away = {"id": [self.id], "drop": self.drop, "weight": [self.weight]}
        for key, columns in (away | {"client": [self.client]}).items():
            for label in labels:
                if label in columns:
                    raise UserError(
                        f"data.{key} leaves out {label!r}, which is the label; name another column"
                    )
        if self.id and self.id in self.keep:
            raise UserError(f"data.id = {self.id!r} names the rows, so it cannot make groups")

    def _label(self, name: str, table: Table) -> tuple[LabelName, tuple[str, ...]]:
        """The label and its columns; a first line that holds data is said."""
        try:
            return label_columns(table, self.label, name)
        except UserError as error:
            if self.reading.columns or not any(map(is_number, table)):
                raise
            raise UserError(
                f"{error}; does its first line hold data and no names? then name the columns: "
                'data.columns = ["age", ...]'
            ) from None

    def _without(self, table: Table) -> Table:
        """The columns of the rows without those that neither the features nor limits use."""
        return {
            column: as_text(cells) if column in self.categories else cells
            for column, cells in table.items()
            if column not in self._away
        }

    @property
    def _away(self) -> set[str]:
        """The columns that neither the features nor limits use."""
        return {*self.drop, self.id, self.client} - set(self.keep)


def load(
    name: str | None = None,
    path: str | Sequence[str] | None = None,
    directory: Path | None = None,
    label: str | Sequence[str] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    keep: Sequence[str] = (),
    *,
    test_path: str | None = None,
    id: str = "",
    drop: Sequence[str] = (),
    categories: Sequence[str] = (),
    columns: Sequence[str] = (),
    missing: Sequence[str] = (),
    impute: str = "mean",
    most_categories: int = 50,
    split: str = "sample",
    kind: TargetKind = "class",
    client: str = "",
) -> Dataset:
    r"""Load a data set by `name` (adult, breast-cancer, credit, diabetes, digits, ...) or `path`.

    A path names a text file such as CSV (also .gz), a Parquet file, an NPZ file with the arrays "x"
    and "y" (and possibly "x_test" and "y_test"), or a folder of NPY files, which are read from disk
    without a copy. Several tables, as a list or as a pattern, hold different rows (`split` =
    "sample") or different columns of the rows with the same `id` ("feature"). The rows of one table
    belong to the clients that its column `client` names.

    `label` names the label column, or compares a column with a number ("num > 0"); labels become
    0 .. L-1 in sorted order. The rows of `test_path` are for testing; without it, `test_fraction`
    of each class is set aside by the seed. `columns` names the columns of a file without a header,
    `drop` those to leave out, `categories` those whose numbers are codes, and `missing` cells that
    mean a missing value, beside the usual ones.

    Columns of numbers are standardised with the mean and deviation of the training rows, columns of
    text become one-hot with at most `most_categories` values, missing numbers are replaced as
    `impute` says ("mean", "median" or "most_frequent") and marked, and uint8 arrays stay as they
    are. The columns in `keep` are also kept as they are, beside x and y. `kind` says what the label
    holds: a "class", a "number" (y is standardised too) or a "count" (y is divided by the mean).
    A list as `label` with the kind "labels" means several labels at once, each of them 0 or 1,
    false or true, no or yes, or a comparison; y holds label sets, in which bit k is label k.
    """
    source = DataSource(
        name=name,
        path=path,
        directory=directory,
        label=None if label is None else as_label(label),
        test_fraction=test_fraction,
        seed=seed,
        keep=keep,
        test_path=test_path,
        id=id,
        drop=drop,
        categories=categories,
        reading=Reading(tuple(missing), tuple(columns)),
        split=split,
        kind=kind,
        client=client,
    )
    return encoded(source.read(), EncodingRules(impute, most_categories))


def encoded(data: RawData | Dataset, rules: EncodingRules) -> Dataset:
    """Encode raw columns; the data is checked, and lies where programs read it without a copy."""
    dataset = data.encoded(rules) if isinstance(data, RawData) else data
    check(dataset)
    own = {name: aligned(column) for name, column in dataset.train.items()}
    return dataclasses.replace(dataset, train=own)


def _npz(path: Path, label: LabelName, keep: Sequence[str]) -> tuple[Table, Table]:
    raw = read_arrays(path)
    labels = label if isinstance(label, tuple) else (label,)
    parts: list[Table] = []
    for end in ("", "_test"):
        lacking = [n + end for n in ("x", *labels, *keep) if n + end not in raw]
        if lacking and not (end and "x_test" not in raw and labels[0] + end not in raw):
            raise UserError(
                f"{path} has no array {lacking[0]!r}; it has {', '.join(raw)}; set data.label"
            )
        part: Table = {}
        if not lacking:
            own = {name: raw[name + end] for name in labels}
            y = label_cells(own, label, str(path))
            part = {"x": raw["x" + end], "y": y} | {k: raw[k + end] for k in keep}
        parts.append(part)
    return parts[0], parts[1]
