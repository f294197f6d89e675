"""Data sets by name, from a CSV, NPZ or Parquet file, or from a folder of NPY files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedssca.data.arrays import aligned
from fedssca.data.dataset import Dataset, check, from_arrays
from fedssca.data.encode import EncodingRules
from fedssca.data.mapped import mapped
from fedssca.data.named import NAMES, ready_made
from fedssca.data.raw import RawData, from_table
from fedssca.data.tables import PARQUET, Table, read_arrays, read_table
from fedssca.errors import UserError

__all__ = ["NAMES", "DataSource", "load"]

_LABELS = ("y", "label", "target", "class")


@dataclass(frozen=True)
class DataSource:
    """Where the rows of a run come from; the arguments of `load` explain the fields."""

    name: str | None = None
    path: str | None = None
    directory: Path | None = None
    label: str | None = None
    test_fraction: float = 0.2
    seed: int = 0
    keep: Sequence[str] = ()

    def read(self) -> RawData | Dataset:
        """Read the rows: raw columns that are not encoded yet, or arrays."""
        if (self.name is None) == (self.path is None):
            raise UserError(
                f"give either data.name or data.path; got {self.name!r} and {self.path!r}"
            )
        if not 0 < self.test_fraction < 1:
            raise UserError(f"test_fraction is {self.test_fraction}; it should lie between 0 and 1")
        if self.label is not None and self.path is None:
            raise UserError(
                f"label {self.label!r} goes with data.path; {self.name} has its own label"
            )
        if self.name is not None:
            return ready_made(self.name, self.directory, self.test_fraction, self.seed, self.keep)
        return self._file(Path(str(self.path)).expanduser())

    def _file(self, path: Path) -> RawData | Dataset:
        kind, rest = path.suffix.lower(), (self.test_fraction, self.seed, self.keep)
        if path.is_dir():
            return mapped(path, self.label or "y", self.keep)
        if not path.is_file():
            raise UserError(
                f"{path} is not there; data.path should name a .csv, .npz or .parquet file, or a "
                "folder of .npy files"
            )
        if kind == ".npz":
            train, test = _npz(path, self.label or "y", self.keep)
            x = train["x"]
            scale = 1 / max(1, int(x.max(initial=0))) if x.dtype == np.uint8 else None
            return from_arrays(path.stem, train, test, scale, *rest)
        if kind not in (".csv", *PARQUET):
            raise UserError(f"{path} ends in {path.suffix!r}; it should be .csv, .npz or .parquet")
        table = read_table(path)
        named = [c for c in _LABELS if c in table] if self.label is None else [self.label]
        if len(named) != 1 or named[0] not in table:
            wanted = f"there is no column {self.label!r}"
            what = "no label column is given" if self.label is None else wanted
            raise UserError(f"{path}: {what}; set label to one of {', '.join(table)}")
        return from_table(path.stem, table, named[0], *rest)


def load(
    name: str | None,
    path: str | None = None,
    directory: Path | None = None,
    label: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    keep: Sequence[str] = (),
    impute: str = "mean",
    most_categories: int = 50,
) -> Dataset:
    """Load a data set by `name` (adult, breast-cancer, credit, digits, fashion, mnist) or `path`.

    A path names a CSV file with a header, a Parquet file, an NPZ file with the arrays "x" and "y"
    (and possibly "x_test" and "y_test"), or a folder of NPY files, which are read from disk
    without a copy. `label` names the label column; labels become 0 .. L-1 in sorted order.

    Without test rows of its own, `test_fraction` of each class is set aside by the seed. Columns
    of numbers are standardised with the mean and deviation of the training rows, columns of text
    become one-hot, and uint8 arrays stay as they are. The columns in `keep` are also kept as they
    are, beside x and y.
    """
    source = DataSource(name, path, directory, label, test_fraction, seed, keep)
    return encoded(source.read(), EncodingRules(impute, most_categories))


def encoded(data: RawData | Dataset, rules: EncodingRules) -> Dataset:
    """Encode raw columns; the data is checked, and lies where programs read it without a copy."""
    dataset = data.encoded(rules) if isinstance(data, RawData) else data
    check(dataset)
    own = {name: aligned(column) for name, column in dataset.train.items()}
    return dataclasses.replace(dataset, train=own)


def _npz(path: Path, label: str, keep: Sequence[str]) -> tuple[Table, Table]:
    raw = read_arrays(path)
    names = {"x": "x", "y": label} | {k: k for k in keep}
    parts = []
    for end in ("", "_test"):
        lacking = [v + end for v in names.values() if v + end not in raw]
        if lacking and not (end and "x_test" not in raw and label + end not in raw):
            raise UserError(
                f"{path} has no array {lacking[0]!r}; it has {', '.join(raw)}; set data.label"
            )
        parts.append({k: raw[v + end] for k, v in names.items()} if not lacking else {})
    return parts[0], parts[1]
