"""A digest of the data of a run, by which a resumed run knows its data again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np

from fedssca.data import Rows
from fedssca.run.build import Job

__all__ = ["data_digest"]

MOST = 1 << 26
"""Bytes of a column that are read; of larger ones rows at equal distances are."""


def data_digest(job: Job) -> str:
    """The sha256 of all columns of a run and of how they are shared out among clients.

    Of a column of more than 64 MiB it covers the shape and as many rows, at equal distances, as
    that takes. A server that never sees the rows has what the sites told: their numbers of rows,
    features and labels, and the means and categories by which all of them encode.
    """
    hasher, clients = hashlib.sha256(), job.clients
    shared = clients.sizes if isinstance(clients, Rows) else [b.tolist() for b in clients.blocks]
    hasher.update(repr((tuple(shared), job.dataset.features, job.dataset.labels)).encode())
    if (encoder := job.dataset.encoder) is not None:
        hasher.update(json.dumps(encoder.state(), sort_keys=True, default=str).encode())
    _add(hasher, clients.columns)
    if isinstance(clients, Rows) and clients.order is not None:
        _add(hasher, {"order": clients.order})
    _add(hasher, job.dataset.test)
    return hasher.hexdigest()


def _add(hasher: hashlib._Hash, columns: Mapping[str, np.ndarray]) -> None:
    for name in sorted(columns):
        column = columns[name]
        hasher.update(repr((name, column.shape, str(column.dtype))).encode())
        if 0 in column.strides:  # zeros in place of rows that are elsewhere
            continue
        step = max(1, -(-column.nbytes // MOST))
        hasher.update(np.ascontiguousarray(column[::step]).tobytes())
