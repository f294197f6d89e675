"""Data sets by name, from a CSV, NPZ or Parquet file, or from a folder of NPY files."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedssca.data import fetch
from fedssca.data.arrays import aligned
from fedssca.data.dataset import Array, Dataset, check, from_arrays, from_table
from fedssca.data.mapped import mapped
from fedssca.data.tables import PARQUET, Table, read_arrays, read_csv, read_table
from fedssca.errors import UserError, nearest

__all__ = ["NAMES", "load"]

NAMES = ("adult", "breast-cancer", "credit", "digits", "fashion", "mnist")
_LABELS = ("y", "label", "target", "class")
_ADULT = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
          "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
          "hours-per-week", "native-country", "income"]  # fmt: skip


def load(
    name: str | None,
    path: str | None = None,
    directory: Path | None = None,
    label: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    keep: Sequence[str] = (),
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
        raise UserError(f"no data set is named {name!r}: {nearest(str(name), NAMES)}")
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
        table = read_csv(paths[0])
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
        train, test = (read_csv(p, _ADULT) for p in paths)
        test["income"] = np.char.rstrip(test["income"].astype(str), ".")
        both, n = {k: np.concatenate([train[k], test[k]]) for k in _ADULT}, len(train["income"])
        data = from_table(name, both, "income", fraction, seed, ["sex", "race", *keep], n)
        return dataclasses.replace(data, positive=data.labels.index(">50K"))
    x, y, xt, yt = (
        read_idx(p, d, sums[f]) for p, f, d in zip(paths, files, (3, 1, 3, 1), strict=True)
    )
    return from_arrays(name, {"x": x, "y": y}, {"x": xt, "y": yt}, 1 / 255, fraction, seed, keep)


def read_idx(path: Path, dims: int, sha256: str | None = None) -> Array:
    """Read and check an IDX file of bytes (.gz or plain) with `dims` dimensions."""
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
    if kind not in (".csv", *PARQUET):
        raise UserError(f"{path} ends in {path.suffix!r}; it should be .csv, .npz or .parquet")
    table = read_table(path)
    named = [c for c in _LABELS if c in table] if label is None else [label]
    if len(named) != 1 or named[0] not in table:
        what = "no label column is given" if label is None else f"there is no column {label!r}"
        raise UserError(f"{path}: {what}; set label to one of {', '.join(table)}")
    return from_table(path.stem, table, named[0], fraction, seed, keep)


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
