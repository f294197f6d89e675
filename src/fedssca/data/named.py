"""The ready-made data sets: their files, labels and columns."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedssca.data import fetch, shipped
from fedssca.data.dataset import Array, Dataset, from_arrays
from fedssca.data.encode import TargetKind
from fedssca.data.encode.labels import LabelName
from fedssca.data.heart import flamby_rows, hospital_rows
from fedssca.data.raw import RawData, from_table
from fedssca.data.tables import Reading, Table, read_csv
from fedssca.errors import UserError, nearest

__all__ = ["NAMES", "credit_columns", "read_credit", "read_idx", "ready_made"]

NAMES = ("adult", "breast-cancer", "credit", "diabetes", "digits", "fashion", "heart",
         "heart-flamby", "mnist")  # fmt: skip
_CREDIT = "default.payment.next.month"
_ADULT = ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status",
          "occupation", "relationship", "race", "sex", "capital-gain", "capital-loss",
          "hours-per-week", "native-country", "income")  # fmt: skip

_CLASSES = (
    '{} has classes, and problem.task = "regression" needs numbers: use data.name = "diabetes", or '
    "data.path and data.label = <a column of numbers>"
)


def ready_made(
    name: str,
    directory: Path | None,
    fraction: float,
    seed: int,
    keep: Sequence[str],
    kind: TargetKind = "class",
    label: LabelName | None = None,
) -> RawData | Dataset:
    """The rows of a ready-made data set: raw columns, or arrays that are only scaled.

    Several labels of a `label` take the place of the own label of a table.
    """
    if name in _TABLES:
        read, own, numbers = _TABLES[name]
        if kind in ("number", "count") and not numbers:
            raise UserError(_CLASSES.format(name))
        if kind == "class" and numbers:
            raise UserError(f'{name} has a target of numbers: set problem.task = "regression"')
        return from_table(name, read(), label or own, fraction, seed, keep, kind=kind)
    if kind == "labels" and name in NAMES:
        raise UserError(
            f"{name} has its own label: several labels at once need data.name = "
            f"{' or '.join(map(repr, _TABLES))}, or data.path"
        )
    if kind != "class" and name in NAMES:
        raise UserError(_CLASSES.format(name))
    if name in ("adult", "credit", "mnist", "fashion"):
        return _from_folder(name, directory, fraction, seed, keep)
    if name == "heart":
        return hospital_rows(name, _heart_files(directory), fraction, seed, keep)
    if name == "heart-flamby":
        return flamby_rows(name, _heart_files(directory), keep)
    if name == "digits":
        return _digits(fraction, seed, keep)
    raise UserError(f"no data set is named {name!r}: {nearest(str(name), NAMES)}")


def _digits(fraction: float, seed: int, keep: Sequence[str]) -> Dataset:
    return from_arrays("digits", shipped.digits(), {}, 1 / 16, fraction, seed, keep)


_TABLES: dict[str, tuple[Callable[[], Table], str, bool]] = {
    "diabetes": (shipped.diabetes, "progression", True),
    "breast-cancer": (shipped.breast_cancer, "malignant", False),
}
"""Tables that scikit-learn ships: their columns, their label, and whether that is a number."""


def _from_folder(
    name: str, directory: Path | None, fraction: float, seed: int, keep: Sequence[str]
) -> RawData | Dataset:
    files, paths = fetch.FILES[name], _located(name, directory)
    if name == "credit":
        data = from_table(name, read_credit(paths[0]), _CREDIT, fraction, seed, _with(keep, "sex"))
        return dataclasses.replace(data, reading=Reading(ready_made="credit"))
    if name == "adult":
        if directory is None:
            _verify(name, paths)
        reading = Reading(columns=_ADULT)
        train, test = (read_csv(p, reading) for p in paths)
        data = from_table(name, train, "income", fraction, seed, _with(keep, "sex", "race"), test)
        positive = data.labels.index(">50K")
        return dataclasses.replace(data, positive=positive, reading=reading)
    sums = fetch.DOWNLOADS[name].files
    x, y, xt, yt = (
        read_idx(p, d, sums[f]) for p, f, d in zip(paths, files, (3, 1, 3, 1), strict=True)
    )
    return from_arrays(name, {"x": x, "y": y}, {"x": xt, "y": yt}, 1 / 255, fraction, seed, keep)


def _located(name: str, directory: Path | None) -> list[Path]:
    """The files of a data set; a UserError says how to get them if they are not here."""
    folder, files = fetch.locate(name, directory), fetch.FILES[name]
    if folder is None:
        how = f"fetch it with: fedssca data get {name}"
        if name not in fetch.DOWNLOADS:
            how = f"put {files[0]} in {fetch.cache_folder() / name}"
        raise UserError(
            f"{name} is not on this machine; {how} "
            f"(or point --dir / data.dir at the folder that holds {files[0]})"
        )
    return [fetch.find_file(folder, f) or folder / f for f in files]


def _heart_files(directory: Path | None) -> list[Path]:
    paths = _located("heart", directory)
    if directory is None:
        _verify("heart", paths)
    return paths


def _verify(name: str, paths: Sequence[Path]) -> None:
    for path in paths:
        fetch.verify(path, fetch.DOWNLOADS[name].files[path.name], fetch.digest(path))


def _with(keep: Sequence[str], *own: str) -> list[str]:
    """The columns to keep, after those that the data set always keeps."""
    return list(dict.fromkeys([*own, *keep]))


def read_credit(path: Path) -> Table:
    """Read UCI_Credit_Card.csv: without ids, and with the column sex, 1 for men and 0 for women."""
    table = read_csv(path)
    for column in ("ID", "SEX"):
        if column not in table:
            raise UserError(f"{path} has no column {column!r}; is it UCI_Credit_Card.csv?")
    del table["ID"]
    return credit_columns(table)


def credit_columns(table: Table) -> Table:
    """The columns of the file with sex, 1 for men and 0 for women, in place of SEX."""
    if "SEX" not in table:
        return table
    rest = {name: cells for name, cells in table.items() if name != "SEX"}
    return {"sex": (table["SEX"] == 1) * 1.0, **rest}


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
