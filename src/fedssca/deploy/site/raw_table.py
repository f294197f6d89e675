"""A site's own data, read from the place that site.toml names. It never leaves the site."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedssca.data.dataset import Array
from fedssca.data.encode import as_text, is_text
from fedssca.data.encode.cells import check_finite
from fedssca.data.encode.labels import (
    LabelName,
    as_label,
    label_cells,
    label_columns,
    label_sources,
)
from fedssca.data.ids import as_cells, id_cells
from fedssca.data.lines import Reading
from fedssca.data.sql import read_query
from fedssca.data.tables import read_table
from fedssca.errors import UserError
from fedssca.run.config import read, section
from fedssca.run.schema import SiteFile

__all__ = ["RawTable", "new_rows", "picked", "read_raw_table", "read_source"]

BROKEN = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)


class RawTable(NamedTuple):
    """Raw rows: an array x or named columns, with labels and ids where the site has them."""

    features: tuple[str, ...]
    x: Array | None
    columns: dict[str, Array]
    """Columns of numbers and of text; empty if there is an array x."""
    extra: dict[str, Array]
    """Columns that a constraint may ask for, by name."""
    y: Array | None
    ids: Array | None
    scale: float
    test: RawTable | None = None
    """Test rows that came in arrays of their own."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.x if self.x is not None else next(iter(self.columns.values())))


def picked(table: RawTable, rows: Array) -> RawTable:
    """These rows of a table in this order; its test rows stay as they are."""
    return table._replace(
        x=None if table.x is None else table.x[rows],
        columns={name: values[rows] for name, values in table.columns.items()},
        extra={name: values[rows] for name, values in table.extra.items()},
        y=None if table.y is None else table.y[rows],
        ids=None if table.ids is None else table.ids[rows],
    )


def read_source(file: Path) -> SiteFile:
    """Read site.toml; its paths become absolute."""
    source = section(SiteFile, read(file), str(file))
    root = file.absolute().parent
    places: dict[str, Any] = {
        name: str(root / Path(getattr(source, name)).expanduser())
        for name in ("path", "test_path", "predict", "order")
        if getattr(source, name)
    }
    return replace(source, **places)


def new_rows(source: SiteFile, label: str | Sequence[str]) -> RawTable:
    """The new rows of a site, for a joint prediction."""
    if not source.predict:
        raise UserError("no new rows: set predict = <file> in site.toml")
    table = read_raw_table(replace(source, path=source.predict, query="", test_path=""), label)
    return table._replace(y=None, test=None)


def read_raw_table(source: SiteFile, label: str | Sequence[str]) -> RawTable:
    """Read the rows of a site; `label` is the run's name for the label, or those for several."""
    label = _own_label(source, as_label(label))
    if source.path.lower().endswith(".npz"):
        return _arrays(Path(source.path), source, label)
    reading = Reading(tuple(source.missing), tuple(source.columns))
    where = source.path or "the query"
    if source.query:
        table = read_query(source.database, source.query, reading, source.id)
    else:
        table = read_table(Path(source.path), reading)
    for column in [*source.ignore, *filter(None, [source.id])]:
        if column not in table:
            raise UserError(f"{where} has no column {column!r}; it has {', '.join(table)}")
    ids = None
    if source.id:
        cells = as_text(table.pop(source.id)).tolist()
        if not source.query:  # numbers in the table have lost leading zeros and long tails
            cells = id_cells(Path(source.path), source.id, reading)
        ids = np.array(cells, object)
    kept = {name: values for name, values in table.items() if name not in source.ignore}
    y = _label(kept, bool(source.label), label, where)
    for column, values in kept.items():
        check_finite(column, values, where)
    if not kept or not len(next(iter(kept.values()))):
        raise UserError(f"{where} has no rows or no feature columns: check path, label and ignore")
    table_of_site = RawTable(tuple(kept), None, kept, kept, y, ids, source.scale)
    if not source.test_path:
        return table_of_site
    test = read_raw_table(replace(source, path=source.test_path, query="", test_path=""), label)
    if test.features != table_of_site.features:
        odd = next(iter(set(test.features) ^ set(table_of_site.features)), "the order")
        raise UserError(
            f"{source.test_path} and {where} differ in their columns: {odd}; both need the same"
        )
    return table_of_site._replace(test=test._replace(y=_like(test.y, y)))


def _like(test: Array | None, train: Array | None) -> Array | None:
    """The labels of test rows, without a full stop that only they have at their ends."""
    if test is None or train is None or not is_text(test):
        return test
    bare = np.char.rstrip(test, ".")
    return np.where(np.isin(test, train) | ~np.isin(bare, train), test, bare)


def _own_label(source: SiteFile, asked: LabelName) -> LabelName:
    """The label that the site itself names, or else the one that the run asks for."""
    own = as_label(source.label)
    several = isinstance(own, tuple)
    if (
        own
        and asked
        and (several != isinstance(asked, tuple) or (several and len(own) != len(asked)))
    ):
        many = len(asked) if isinstance(asked, tuple) else 1
        raise UserError(
            f"label in site.toml names {len(own) if several else 1} of {many} labels that the run "
            "asks for; name as many columns, in the order of data.label"
        )
    return own or asked


def _label(kept: dict[str, Array], own: bool, label: LabelName, where: str) -> Array | None:
    """Take the label out of the columns; None if the site has none.

    A label that is the site's `own` must be there, and of several labels none may lack alone.
    """
    some = isinstance(label, tuple) and any(label_sources(each, kept) for each in label)
    try:
        name, columns = label_columns(kept, label or "y", where)
    except UserError:
        if own or some:
            raise
        return None
    y = label_cells(kept, name, where)
    for column in columns:
        del kept[column]
    return y


def _arrays(path: Path, source: SiteFile, label: LabelName) -> RawTable:
    """Read x, y, x_test, y_test and further columns; "features" may name the columns of x."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
            raw = {name: np.asarray(held[name]) for name in held.files}
    except BROKEN as error:
        raise UserError(f"{path} cannot be read as NPZ of plain arrays: {error}") from None
    if "x" not in raw or raw["x"].ndim < 2 or raw["x"].dtype.kind not in "biuf":
        raise UserError(f"{path} needs an array x of numbers with one row per sample")
    names = raw.pop("features", None)
    width = int(np.prod(raw["x"].shape[1:]))
    features = tuple(map(str, names)) if names is not None else _numbered(width)
    if len(features) != width:
        raise UserError(f"{path}: {len(features)} names in features for {width} columns of x")

    def part(end: str, test: RawTable | None) -> RawTable:
        x = raw["x" + end]
        own = {name.removesuffix("_test"): v for name, v in raw.items() if _ends(name, end)}
        odd = [name for name, values in own.items() if len(values) != len(x)]
        if odd:
            raise UserError(f"{path}: {odd[0]}{end} has {len(own[odd[0]])} rows, x has {len(x)}")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise UserError(f"{path}: x{end} holds numbers that are not finite")
        there = source.label or label in own or isinstance(label, tuple)
        y = _label(own, False, label if there else "y", str(path))
        ids = own.pop(source.id or "ids", None)
        del own["x"]
        flat = x.reshape(len(x), -1)
        named = None if ids is None else np.array(as_cells(ids, str(path)), object)
        return RawTable(features, flat, {}, own, y, named, source.scale, test)

    return part("", part("_test", None) if "x_test" in raw and len(raw["x_test"]) else None)


def _ends(name: str, end: str) -> bool:
    return name.endswith("_test") == bool(end)


def _numbered(width: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(width))
