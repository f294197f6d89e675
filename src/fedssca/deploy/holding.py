"""A site's rows on their way: what it says of them, and how they are encoded for training."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from fedssca.data.dataset import Array, stratified
from fedssca.deploy.census import Asked, Census, Facts, joined_moments
from fedssca.deploy.sheet import Sheet
from fedssca.errors import UserError

__all__ = ["Holding", "digest"]

MOST_GROUPS = 1000


class Holding:
    """A site's rows on their way from raw columns to what a client object takes."""

    def __init__(self, sheet: Sheet, asked: Asked) -> None:
        self._sheet, self._asked = sheet, asked
        self._train: Array | None = None
        if sheet.test is None and sheet.y is not None:
            self._train = stratified(sheet.y, asked["test_fraction"], asked["seed"])
        for column in asked["extra"]:
            if column not in sheet.extra and (sheet.y is not None or not asked["columns"]):
                there = ", ".join(sheet.extra) or "none"
                raise UserError(
                    f"a constraint asks for column {column!r}, columns are: {there}; "
                    "change the constraint's column, or the site's table"
                )
        if sheet.y is None and not asked["columns"]:
            raise UserError(
                f"no label column: set label in site.toml to one of {', '.join(sheet.features)}"
            )

    def facts(self, secure: bool) -> Facts:
        """What this site says of its data."""
        sheet, asked, rows = self._sheet, self._asked, self._rows()
        said: Facts = {
            "package": version("fedssca"),
            "secure": secure,
            "rows": sheet.rows if rows is None else int(rows.sum()),
            "all_rows": sheet.rows,
            "held": sheet.test.rows if sheet.test else 0 if rows is None else int((~rows).sum()),
            "features": list(sheet.features),
            "array": sheet.x is not None,
            "dtype": "float32" if sheet.x is None else str(sheet.x.dtype),
            "scale": sheet.scale,
            "labels": None,
        }
        if sheet.y is not None:
            parts = [part.y for part in (sheet, sheet.test) if part and part.y is not None]
            said["labels"] = np.unique(np.concatenate(parts)).tolist()
            if len(said["labels"]) > MOST_GROUPS:
                raise UserError(
                    f"{len(said['labels'])} different labels: is that the column? "
                    "set label in site.toml"
                )
            said["extra"] = {
                name: _kinds(sheet.extra[name]) for name in asked["extra"] if name in sheet.extra
            }
            if asked["counted"]:
                said["counts"] = self._counts()
        if asked["columns"]:
            said["ids"] = digest(asked["run"], sheet.ids, sheet.test and sheet.test.ids)
            if sheet.y is not None:
                said["y"] = digest(asked["run"], sheet.y.astype(str), None)
                if rows is not None:
                    said["test_rows"] = np.flatnonzero(~rows).tolist()
        if sheet.x is not None and not sheet.scale and _bytes(sheet):
            said["most"] = int(self._own(sheet.x).max(initial=0))
        elif not (sheet.x is not None and sheet.scale):
            said |= self._encoding(asked["columns"])
            if asked["columns"]:  # each party encodes its own columns on its own
                del said["moments"]
        return said

    def _encoding(self, alone: bool) -> dict[str, Any]:
        """Kinds of text and moments of numbers; who is alone with a column sees all its kinds."""
        raw = _raw_columns(self._sheet)
        return {
            "kinds": {n: _kinds(v if alone else self._own(v)) for n, v in raw if _text(v)},
            "moments": {n: _moments(self._own(v)) for n, v in raw if not _text(v)},
        }

    def columns(self, census: Census) -> tuple[dict[str, Array], dict[str, Array]]:
        """Training and test rows, encoded as the census says."""
        sheet = self._sheet
        if census.columns and self._train is None and sheet.test is None:
            self._train = ~np.isin(np.arange(sheet.rows), census.test_rows)
        census = self._alone(census)
        whole = self._encoded(sheet, census)
        if sheet.test is not None:
            return whole, self._encoded(sheet.test, census)
        rows = self._rows()
        assert rows is not None
        return ({n: v[rows] for n, v in whole.items()}, {n: v[~rows] for n, v in whole.items()})

    def fresh(self, sheet: Sheet, census: Census) -> tuple[dict[str, Array], Facts]:
        """New rows, encoded as the training rows were, and what peers may know of them."""
        if sheet.features != self._sheet.features:
            raise UserError(f"the new rows have other columns: {', '.join(sheet.features[:5])}")
        ids = digest(self._asked["run"], sheet.ids, None)
        own = {"x": self._features(sheet, self._alone(census))}
        return own, {"rows": sheet.rows, "ids": ids}

    def _alone(self, census: Census) -> Census:
        """Where parties hold columns each encodes its own, by its own training rows."""
        sheet = self._sheet
        if not census.columns or (sheet.x is not None and (sheet.scale or _bytes(sheet))):
            return census
        own = self._encoding(alone=True)
        moments = {n: joined_moments([m]) for n, m in own["moments"].items()}
        return replace(census, kinds=own["kinds"], moments=moments)

    def _encoded(self, sheet: Sheet, census: Census) -> dict[str, Array]:
        out: dict[str, Array] = {"x": self._features(sheet, census)}
        if sheet.y is not None:
            places = {label: place for place, label in enumerate(census.labels)}
            out["y"] = np.array([places[label] for label in sheet.y.tolist()], np.int32)
            for name, kinds in census.extra.items():
                values = sheet.extra[name]
                out[name] = (
                    values.astype(np.float32)
                    if kinds is None
                    else np.searchsorted(np.array(kinds), values).astype(np.int32)
                )
        return out

    def _features(self, sheet: Sheet, census: Census) -> Array:
        if sheet.x is not None and (sheet.scale or _bytes(sheet)):
            return sheet.x if sheet.x.dtype != np.float64 else sheet.x.astype(np.float32)
        blocks = []
        for name, values in _raw_columns(sheet):
            if _text(values):
                blocks.append((values[:, None] == np.array(census.kinds[name])).astype(np.float32))
            else:
                mean, deviation = census.moments[name]
                there = (values - mean) / deviation if deviation else np.zeros(len(values))
                blocks.append(there[:, None].astype(np.float32))
        return np.concatenate(blocks, axis=1)

    def _rows(self) -> Array | None:
        """Which rows are for training; None: all."""
        return self._train

    def _own(self, values: Array) -> Array:
        return values if self._train is None else values[self._train]

    def _counts(self) -> list[list[Any]]:
        sheet = self._sheet
        assert sheet.y is not None
        columns = [sheet.y, *(sheet.extra[n] for n in self._asked["extra"] if n in sheet.extra)]
        parts = [np.unique(self._own(c), return_inverse=True) for c in columns]
        codes = np.stack([inverse for _, inverse in parts])
        groups, counts = np.unique(codes, axis=1, return_counts=True)
        if len(counts) > MOST_GROUPS:
            raise UserError(f"{len(counts)} groups to count: a constraint's column has few values")
        return [
            [*(parts[i][0][code].item() for i, code in enumerate(group)), int(count)]
            for group, count in zip(groups.T, counts, strict=True)
        ]


def _raw_columns(sheet: Sheet) -> list[tuple[str, Array]]:
    if sheet.x is None:
        return list(sheet.table.items())
    return [(name, sheet.x[:, j]) for j, name in enumerate(sheet.features)]


def _bytes(sheet: Sheet) -> bool:
    return sheet.x is not None and sheet.x.dtype == np.uint8


def _text(values: Array) -> bool:
    return values.dtype.kind == "U"


def _kinds(values: Array) -> list[str] | None:
    return [str(kind) for kind in np.unique(values)] if _text(values) else None


def _moments(values: Array) -> list[float]:
    exact = values.astype(np.float64)
    mean = float(exact.mean())
    spread = float(np.square(exact - mean).sum())
    return [float(len(exact)), mean, 0.0 if (exact == exact[0]).all() else spread]


def digest(run: str, values: Any, more: Any) -> str:
    """A fingerprint of a column in its order, of no use in another run."""
    text = "\0".join([run, *map(str, values), *(() if more is None else map(str, more))])
    return hashlib.sha256(text.encode()).hexdigest()
