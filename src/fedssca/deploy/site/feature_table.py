"""Which columns of a site's table are features, and whether they are encoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedssca.data.dataset import Array
from fedssca.data.encode import as_text
from fedssca.data.encode.misread import misread_numbers
from fedssca.deploy.site.raw_table import RawTable
from fedssca.deploy.site.refusal import LimitRefused
from fedssca.errors import UserError
from fedssca.run.schema import SiteLimits

__all__ = ["coded_table", "raw_columns", "used_as_is", "with_features"]


def with_features(table: RawTable, limits: SiteLimits) -> RawTable:
    """The table with the features that the site allows."""
    if not limits.features:
        return table
    kept = [j for j, name in enumerate(table.features) if name in limits.features]
    if not kept:
        raise LimitRefused(
            "limits.features", limits.features, "the table has none of these columns"
        )
    return table._replace(
        features=tuple(table.features[j] for j in kept),
        x=None if table.x is None else table.x[:, kept],
        columns={n: v for n, v in table.columns.items() if n in limits.features},
        test=table.test and with_features(table.test, limits),
    )


def coded_table(table: RawTable, categories: Sequence[str], drop: Sequence[str]) -> RawTable:
    """The table with text in place of numbers that are codes, and without dropped features.

    Limits can still use the columns that are dropped.
    """
    for misread in misread_numbers(table.columns, (*categories, *drop), tell=False):
        raise UserError(misread)
    coded = {name: as_text(table.columns[name]) for name in categories if name in table.columns}
    used = {n: v for n, v in (table.columns | coded).items() if n not in drop}
    return table._replace(
        features=tuple(used) if table.x is None else table.features,
        columns=used,
        extra=table.extra | coded,
        test=table.test and coded_table(table.test, categories, drop),
    )


def raw_columns(table: RawTable) -> list[tuple[str, Array]]:
    """The features by name, each with its cells."""
    if table.x is None:
        return list(table.columns.items())
    return [(name, table.x[:, j]) for j, name in enumerate(table.features)]


def used_as_is(table: RawTable) -> bool:
    """Whether x is an array that the model only scales."""
    return table.x is not None and bool(table.scale or table.x.dtype == np.uint8)
