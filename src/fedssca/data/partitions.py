"""Clients from partitions: Hugging Face or PyTorch datasets, or those of flwr-datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedssca.data.encode.labels import USUAL
from fedssca.data.loaders import as_columns, joined
from fedssca.data.split import Rows
from fedssca.errors import UserError

__all__ = ["from_partitions"]


def from_partitions(
    partitions: Any,
    *,
    label: str = "",
    features: Sequence[str] = (),
    keep: Sequence[str] = (),
    split: str = "train",
    names: Sequence[str] = (),
) -> Rows:
    """The clients whose rows these partitions hold, one partition for each client.

    `partitions` is a list of datasets, or a `FederatedDataset` of flwr-datasets, all of whose
    partitions of `split` are loaded. A dataset is a table (Hugging Face: it has `column_names`), or
    gives pairs (x, y) by number (PyTorch). Of a table, y is the column `label` (without it: y,
    label, target or class), x is made of the columns `features` (without them: of all others), and
    the columns `keep` stand beside x and are no features unless they are named as such. The rows
    stay in memory.

    >>> pairs = [(np.zeros(3, np.float32), 0), (np.ones(3, np.float32), 1)]
    >>> from_partitions([pairs, pairs * 2]).sizes
    (2, 4)
    """
    found = _loaded(partitions, split) if hasattr(partitions, "load_partition") else partitions
    parts = []
    for number, part in enumerate(found):
        where = f"partition {number}"
        if getattr(part, "column_names", None) is not None:
            parts.append(_table(where, part, label, features, keep))
        elif label or features or keep:
            raise UserError(f"{where} has no columns, so label, features and keep cannot be set")
        else:
            parts.append(_pairs(where, part))
    return joined("partition", parts, names)


def _loaded(federated: Any, split: str) -> list[Any]:
    """All partitions of a split."""
    known = federated.partitioners
    if split not in known:
        raise UserError(f"split {split!r} has no partitioner; set split to {', '.join(known)}")
    federated.load_partition(0, split)  # some partitioners know their number only after this
    count = int(known[split].num_partitions)
    return [federated.load_partition(number, split) for number in range(count)]


def _table(
    where: str, table: Any, label: str, features: Sequence[str], keep: Sequence[str]
) -> dict[str, np.ndarray]:
    """The columns x, y and those to keep of a table."""
    there = [str(name) for name in table.column_names]
    usual = [name for name in USUAL if name in there]
    y = label or (usual[0] if len(usual) == 1 else "")
    if y not in there:
        what = f"column {label!r}" if label else "label column"
        raise UserError(f"{where} has no {what}; set label to one of {', '.join(there)}")
    wanted = list(features) or [name for name in there if name != y and name not in keep]
    for name in (*wanted, *keep):
        if name not in there:
            raise UserError(f"{where} has no column {name!r}; it has {', '.join(there)}")
    if not wanted:
        raise UserError(f"{where} has only the label {y!r}; features are needed")
    made = {name: _cells(where, name, table[name]) for name in dict.fromkeys([*wanted, y, *keep])}
    x = [made[name] for name in wanted]
    if len(x) > 1 and any(column.ndim > 1 for column in x):
        raise UserError(
            f"{where}: columns {', '.join(wanted)} cannot be one x, because some hold arrays; "
            f"name one: features = [{wanted[0]!r}]"
        )
    # a single column that holds numbers is a feature, too
    whole = x[0] if len(x) == 1 and x[0].ndim > 1 else np.stack(x, axis=1)
    return as_columns({"x": whole, "y": made[y], **{name: made[name] for name in keep}})


def _cells(where: str, name: str, column: Any) -> np.ndarray:
    try:
        cells = np.stack([np.asarray(cell) for cell in column])
    except ValueError:
        raise UserError(
            f"{where}: column {name!r} has no rows, or cells of different shapes; mend it"
        ) from None
    if cells.dtype.kind not in "biuf":
        raise UserError(
            f"{where}: column {name!r} holds {cells.dtype}, not numbers; number its values, or "
            "leave it out of features"
        )
    return cells


def _pairs(where: str, part: Any) -> dict[str, np.ndarray]:
    """The rows of a dataset that gives pairs (x, y)."""
    items = [part[number] for number in range(len(part))]
    if not items:
        raise UserError(f"{where} has no rows: every client needs rows")
    for item in items:
        if not (isinstance(item, list | tuple) and len(item) == 2):
            raise UserError(
                f"{where} gives {type(item).__name__}, so it has no labels: items must be pairs "
                "(x, y), or the dataset a table with column_names"
            )
    x, y = zip(*items, strict=True)
    return as_columns({"x": _cells(where, "x", x), "y": _cells(where, "y", y)})
