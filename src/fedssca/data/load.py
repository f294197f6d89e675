"""Data sets by name, from a CSV, NPZ or Parquet file, or from a folder of NPY files."""

from __future__ import annotations

import csv
import dataclasses
import difflib
import hashlib
import math
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedssca.data import fetch
from fedssca.data.arrays import aligned
from fedssca.data.dataset import Array, Dataset, check, from_arrays, from_table
from fedssca.data.mapped import mapped
from fedssca.errors import UserError

__all__ = ["NAMES", "load", "read_table"]

NAMES = ("adult", "breast-cancer", "credit", "digits", "fashion", "mnist")
_BLANK = "{}: column {!r} is blank in row {}; fill or drop such rows first"
_BAD_NPZ = (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError,
            zipfile.BadZipFile, zlib.error)  # fmt: skip
_LABELS = ("y", "label", "target", "class")
_ADULT = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
          "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
          "hours-per-week", "native-country", "income"]  # fmt: skip
Table = dict[str, Array]  # float64 columns and str columns


def load(
    name: str | None,
    path: str | None = None,
    directory: Path | None = None,
    label: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    keep: Sequence[str] = (),
) -> Dataset:
    """Load a data set by `name` (see `NAMES`) or from the file at `path`.

    A file: CSV with a header, NPZ with "x" and "y" (and "x_test" and "y_test"), or Parquet;
    `label` names the label column. Without test rows of its own, `test_fraction` of each class is
    set aside by the seed. Numbers are standardised by the training rows, text is one-hot, uint8
    arrays stay as they are. `keep`: columns also kept raw, beside x and y. Labels become 0..L-1
    in sorted order. A folder of NPY files is used as it is, from disk; see `mapped`.
    """
    if (name is None) == (path is None):
        raise UserError(f"give either data.name or data.path; got {name!r} and {path!r}")
    if not 0 < test_fraction < 1:
        raise UserError(f"test_fraction is {test_fraction}; it should lie between 0 and 1")
    if label is not None and path is None:
        raise UserError(f"label {label!r} goes with data.path; {name} has its own label")
    if path is not None:
        data = _file(Path(path).expanduser(), label, test_fraction, seed, keep)
    elif name in ("adult", "credit", "mnist", "fashion"):
        data = _from_folder(name, directory, test_fraction, seed, keep)
    elif name in ("digits", "breast-cancer"):
        data = _embedded(name, test_fraction, seed, keep)
    else:
        near = difflib.get_close_matches(str(name), NAMES, 1, 0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"no data set is named {name!r}; {hint}Known: {', '.join(NAMES)}")
    check(data)
    own = {name: aligned(column) for name, column in data.train.items()}
    return dataclasses.replace(data, train=own)


def _embedded(name: str, fraction: float, seed: int, keep: Sequence[str]) -> Dataset:
    from sklearn.datasets import load_breast_cancer, load_digits

    if name == "digits":
        raw = load_digits()
        columns = {"x": raw.data.astype(np.uint8), "y": raw.target.astype(np.int32)}
        return from_arrays(name, columns, {}, 1 / 16, fraction, seed, keep)
    raw = load_breast_cancer()
    table = {str(f): raw.data[:, j] for j, f in enumerate(raw.feature_names)}
    table["malignant"] = 1.0 - raw.target
    return from_table(name, table, "malignant", fraction, seed, keep)


def _from_folder(
    name: str, directory: Path | None, fraction: float, seed: int, keep: Sequence[str]
) -> Dataset:
    folder, files = fetch.locate(name, directory), fetch.FILES[name]
    if folder is None:
        how = f"fetch it with: fedssca data get {name}"
        if name not in fetch.DOWNLOADS:
            how = f"put {files[0]} in {fetch.cache_folder() / name}"
        raise UserError(
            f"{name} is not on this machine; {how} "
            f"(or point --dir / data.dir at the folder that holds {files[0]})"
        )
    paths = [fetch.find_file(folder, f) or folder / f for f in files]
    if name == "credit":
        table = _csv(paths[0])
        for column in ("ID", "SEX", "default.payment.next.month"):
            if column not in table:
                raise UserError(f"{paths[0]} has no column {column!r}; is it UCI_Credit_Card.csv?")
        del table["ID"]
        table = {"sex": (table.pop("SEX") == 1) * 1.0, **table}
        return from_table(name, table, "default.payment.next.month", fraction, seed, ["sex", *keep])
    sums = fetch.DOWNLOADS[name].files
    if name == "adult":
        if directory is None:
            for p in paths:
                fetch.verify(p, sums[p.name], fetch.digest(p))
        train, test = (_csv(p, _ADULT) for p in paths)
        test["income"] = np.char.rstrip(test["income"].astype(str), ".")
        both, n = {k: np.concatenate([train[k], test[k]]) for k in _ADULT}, len(train["income"])
        return from_table(name, both, "income", fraction, seed, ["sex", "race", *keep], n)
    x, y, xt, yt = (
        read_idx(p, d, sums[f]) for p, f, d in zip(paths, files, (3, 1, 3, 1), strict=True)
    )
    return from_arrays(name, {"x": x, "y": y}, {"x": xt, "y": yt}, 1 / 255, fraction, seed, keep)


def read_idx(path: Path, dims: int, sha256: str | None = None) -> Array:
    """Read an IDX file of bytes (.gz or plain) with `dims` dimensions, checked before use."""
    try:
        with fetch.open_file(path) as stream:
            head = stream.read(4 + 4 * dims)
            if len(head) < 4 + 4 * dims or head[:4] != bytes((0, 0, 8, dims)):
                raise UserError(
                    f"{path} is not an IDX file of bytes in {dims} dimensions: it starts with "
                    f"{head[:4].hex()}, not 000008{dims:02x}; {fetch.AGAIN}"
                )
            shape = struct.unpack(f">{dims}I", head[4:])
            size = math.prod(shape)
            if size > 1100 * path.stat().st_size:  # gzip cannot shrink more than that
                raise UserError(f"{path} is too short for its shape {shape}; {fetch.AGAIN}")
            body = stream.read(size + 1)
    except (*fetch.BROKEN, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}; {fetch.AGAIN}") from None
    if len(body) != size:
        raise UserError(
            f"{path} states the shape {shape}, {size} bytes, and holds "
            f"{len(body) if len(body) < size else 'more'}; {fetch.AGAIN}"
        )
    if sha256:
        fetch.verify(path, sha256, hashlib.sha256(head + body).hexdigest())
    return np.frombuffer(body, np.uint8).reshape(shape)


def _file(
    path: Path, label: str | None, fraction: float, seed: int, keep: Sequence[str]
) -> Dataset:
    kind = path.suffix.lower()
    if path.is_dir():
        return mapped(path, label or "y", keep)
    if not path.is_file():
        raise UserError(
            f"{path} is not there; data.path should name a .csv, .npz or .parquet file, or a "
            "folder of .npy files"
        )
    if kind == ".npz":
        train, test = _npz(path, label or "y", keep)
        scale = 1 / max(1, int(train["x"].max(initial=0))) if train["x"].dtype == np.uint8 else None
        return from_arrays(path.stem, train, test, scale, fraction, seed, keep)
    if kind not in (".csv", ".parquet", ".pq"):
        raise UserError(f"{path} ends in {path.suffix!r}; it should be .csv, .npz or .parquet")
    table = read_table(path)
    named = [c for c in _LABELS if c in table] if label is None else [label]
    if len(named) != 1 or named[0] not in table:
        what = "no label column is given" if label is None else f"there is no column {label!r}"
        raise UserError(f"{path}: {what}; set label to one of {', '.join(table)}")
    return from_table(path.stem, table, named[0], fraction, seed, keep)


def read_table(path: Path) -> Table:
    """The columns of a CSV or Parquet file: float64 where all cells are numbers, else text."""
    if not path.is_file():
        raise UserError(f"{path} is not there; name a .csv or .parquet file")
    if path.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise UserError(f"{path} ends in {path.suffix!r}; it should be .csv or .parquet")
    return _csv(path) if path.suffix.lower() == ".csv" else _parquet(path)


def _npz(path: Path, label: str, keep: Sequence[str]) -> tuple[Table, Table]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
            raw = {k: np.asarray(held[k]) for k in held.files}
    except _BAD_NPZ as e:
        raise UserError(
            f"{path} cannot be read as NPZ of plain arrays: {e}; "
            "write it with numpy.savez(file, x=..., y=...)"
        ) from None
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


def _csv(path: Path, names: Sequence[str] | None = None) -> Table:
    """Columns of a CSV file; `names` if it has no header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            rows = filter(None, csv.reader(lines, skipinitialspace=True))
            header = [n.strip() for n in names or next(rows, [])]
            if len(set(header)) < len(header):
                raise UserError(
                    f"{path}: the header names a column twice: {', '.join(header)}; rename one"
                )
            first = next(rows, None)
            if names and first and first[0].startswith("|"):  # a remark, in adult.test
                first = next(rows, None)
            if first is None:
                raise UserError(f"{path} is empty; it should hold a header and rows of data")
            table = _numbers(path, len(header)) if names is None else None
            cells = [] if table is not None else [first, *rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{path} cannot be read as CSV text: {error}; save it as UTF-8 CSV"
        ) from None
    if table is not None:
        return dict(zip(header, table, strict=True))
    for i, row in enumerate(cells):
        if len(row) != len(header):
            raise UserError(
                f"{path}, row {i + 1}: {len(row)} cells for {len(header)} columns; mend that row"
            )
    return {n: _column(path, n, c) for n, c in zip(header, zip(*cells, strict=True), strict=True)}


def _numbers(path: Path, width: int) -> Array | None:
    """Read a file of numbers only, fast; None if it is not one."""
    try:
        table = np.loadtxt(
            path, delimiter=",", skiprows=1, quotechar='"', ndmin=2, comments=None, encoding="utf-8"
        )
    except ValueError:
        return None
    return np.ascontiguousarray(table.T) if table.shape[1] == width else None


def _column(path: Path, name: str, cells: Sequence[str]) -> Array:
    """Numbers if all cells are, else text; blank cells are refused."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        text = [c.strip() for c in cells]
    if "" in text:
        raise UserError(_BLANK.format(path, name, text.index("") + 1))
    return np.array(text)


def _parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError(f'{path} needs pyarrow: pip install "fedssca[parquet]"') from None
    try:
        source = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{path} cannot be read as Parquet: {error}; write it anew, or use CSV"
        ) from None
    table: Table = {}
    for name, column in zip(source.column_names, source.columns, strict=True):
        values = column.to_pylist()
        if None in values:
            raise UserError(_BLANK.format(path, name, values.index(None) + 1))
        text = all(isinstance(v, str) for v in values)
        if not text and not all(isinstance(v, bool | int | float) for v in values):
            raise UserError(
                f"{path}: column {name!r} is {column.type}, not number or text; convert or drop it"
            )
        table[name] = np.array(values, dtype=str if text else np.float64)
    return table
