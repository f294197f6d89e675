"""Calibration rows: set aside before training, for statements about new rows.

A row is one of them by a rule that is fixed before training: by the hash of its id, so that it
keeps its role in every run and at every site; or, for rows without ids, at random by the seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from fedssca.data.dataset import Array, Dataset
from fedssca.data.encode import Encoder, NumberEncoding, TargetScale
from fedssca.data.raw import RawData
from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError

__all__ = ["calibration_rows", "set_aside", "with_calibration"]

SALT = b"fedssca calibration rows"


def calibration_rows(
    rows: int, fraction: float, seed: int, ids: Iterable[Any] | None = None
) -> Array:
    """Mark the rows that are set aside: each with probability `fraction`.

    >>> ids = [f"patient {i}" for i in range(1000)]
    >>> marks = calibration_rows(1000, 0.2, seed=0, ids=ids)
    >>> bool((marks == calibration_rows(1000, 0.2, seed=1, ids=ids)).all()), int(marks.sum())
    (True, 191)
    """
    if ids is None:
        drawn = np.random.default_rng([seed, 0x63616C]).random(rows)
    else:
        hashes = (hashlib.sha256(SALT + str(one).encode()).digest()[:8] for one in ids)
        drawn = np.array([int.from_bytes(each, "big") / 2**64 for each in hashes])
    return np.asarray(drawn < fraction)


def with_calibration(data: RawData | Dataset, fraction: float, seed: int) -> RawData | Dataset:
    """The same data with training rows marked as calibration rows, which no statistic uses."""
    if isinstance(data, Dataset):
        rows = len(data.train["y"])
        return _scaled_anew(data, calibration_rows(rows, fraction, seed))
    known = len(data.y) if data.ids is None else len(data.ids)
    marks = np.zeros(len(data.y), bool)
    marks[:known] = calibration_rows(known, fraction, seed, data.ids)
    return replace(data, aside=marks & data.train)


def _scaled_anew(data: Dataset, marks: Array) -> Dataset:
    """Standardise the columns of an array again, without the marked rows; images stay as they are.

    (x - m) / d, standardised once more with m' and d', is (x - (m + d m')) / (d d').
    """
    data = _target_anew(data, marks)
    if data.encoder is None:
        return replace(data, aside=marks)
    rest = data.train["x"][~marks].astype(np.float64)
    mean, deviation = rest.mean(axis=0), rest.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)

    def again(columns: dict[str, Array]) -> dict[str, Array]:
        return columns | {"x": ((columns["x"] - mean) / deviation).astype(columns["x"].dtype)}

    made = []
    for column, m, d in zip(data.encoder.columns, mean, deviation, strict=True):
        assert isinstance(column, NumberEncoding)
        at = column.mean + column.deviation * float(m)
        made.append(replace(column, fill=at, mean=at, deviation=column.deviation * float(d)))
    encoder: Encoder = replace(data.encoder, columns=tuple(made))
    return replace(
        data, train=again(data.train), test=again(data.test), encoder=encoder, aside=marks
    )


def _target_anew(data: Dataset, marks: Array) -> Dataset:
    """Scale a target of numbers again, without the marked rows; a count has no shift."""
    before = data.target
    if before is None:
        return data
    rest = before.decode(data.train["y"])[~marks]
    mean, deviation = float(rest.mean()), float(rest.std())
    unit = TargetScale(mean, deviation) if before.shift else TargetScale(0.0, mean)
    if unit.scale <= 0:
        return data

    def again(columns: dict[str, Array]) -> dict[str, Array]:
        return columns | {"y": unit.encode(before.decode(columns["y"]))}

    return replace(data, train=again(data.train), test=again(data.test), target=unit)


def set_aside(clients: Rows | Columns, marks: Array) -> tuple[Rows | Columns, dict[str, Array]]:
    """The clients without the marked rows, and these rows, with the number of their client."""
    if isinstance(clients, Columns):
        kept = {name: values[~marks] for name, values in clients.columns.items()}
        held = {name: values[marks] for name, values in clients.columns.items()}
        owners = np.zeros(int(marks.sum()), np.int32)
        return replace(clients, columns=kept), held | {"client": owners}
    owner = clients.owners()
    order = np.arange(len(owner), dtype=np.int32) if clients.order is None else clients.order
    own = order[~marks[order]]
    sizes = np.bincount(owner[own], minlength=clients.count)
    if not sizes.all():
        raise UserError(
            f"client {int(sizes.argmin())} has no training row left beside its calibration rows; "
            "set a smaller data.calibration_fraction"
        )
    rows = np.flatnonzero(marks & (owner >= 0))
    held = {name: values[rows] for name, values in clients.columns.items()}
    left = replace(clients, sizes=tuple(int(size) for size in sizes), order=own)
    return left, held | {"client": owner[rows]}
