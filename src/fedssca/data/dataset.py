"""A data set: named columns of training and test rows, made from raw columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedssca.data.classes import Label, class_names
from fedssca.data.encode import (
    Encoder,
    NumberEncoding,
    TargetKind,
    TargetScale,
    codes,
    is_text,
    kinds_of,
    missing_cells,
    named_cells,
    standardise,
)
from fedssca.data.encode.label_sets import check_two_values
from fedssca.data.encode.labels import LabelName
from fedssca.data.encode.targets import NAMED, strata_of, target_numbers, target_scale
from fedssca.errors import UserError

__all__ = [
    "Array",
    "Dataset",
    "check",
    "check_keep",
    "columns_beside",
    "from_arrays",
    "in_train",
    "numbered_labels",
    "numbered_target",
    "stratified",
]

Array = npt.NDArray[Any]

BLOCK = 1 << 16
"""The number of rows that are checked together, so that data on disk is not loaded at once."""


@dataclass(frozen=True)
class Dataset:
    """Training and test rows as named columns: arrays with one row per sample.

    `x` (N, P) keeps its small dtype (uint8 images stay uint8), `y` (N,) holds int32 labels
    0 .. classes-1, further columns (a sensitive attribute, say) are float32 or int arrays (N,).
    With a `target` of numbers y is float32, in the unit of the target, and there are no classes.
    With label `sets` y holds the label sets of several labels, which `labels` names; `classes` is
    their number.
    """

    name: str
    train: dict[str, Array]
    test: dict[str, Array]
    classes: int
    scale: float
    """The factor by which the model multiplies x: 1/255 for images, 1 for standardised columns."""
    features: tuple[str, ...]
    """The names of the P columns of x."""
    labels: tuple[Label, ...] = ()
    """The names of the classes 0 .. classes-1, as in the data; by default their numbers."""
    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each further column that holds text: the values that its numbers 0, 1, ... stand for."""
    positive: int | None = None
    """The class that rates are about, if the data set itself defines one."""
    encoder: Encoder | None = None
    """How raw rows become x and y; None if x is an array that is only scaled, such as images."""
    owners: Array | None = None
    """For each training row the number of its client, if clients have files of their own."""
    test_owners: Array | None = None
    """The same for each test row; None if test rows belong to no client."""
    clients: tuple[str, ...] = ()
    """The names of these clients."""
    blocks: tuple[Array, ...] | None = None
    """The features of each party, if parties have files of their own."""
    aside: Array | None = None
    """For each training row whether it is set aside as a calibration row; None: no row is."""
    apart: bool = False
    """Parties encode their own columns, and nobody else knows how."""
    notes: tuple[str, ...] = ()
    """What was decided about the columns and the user should know."""
    target: TargetScale | None = None
    """The unit of y, if it is a number; None: y is a class or a label set."""
    sets: bool = False
    """y is a label set (`encode/label_sets.py`)."""
    categories: tuple[tuple[int, ...], ...] = ()
    """The features of each column of categories, where no encoder tells them."""

    def __post_init__(self) -> None:
        """Classes without names are called by their numbers."""
        if not self.labels:
            object.__setattr__(self, "labels", tuple(range(self.classes)))

    @property
    def category_places(self) -> tuple[tuple[int, ...], ...]:
        """The features that were made of each column of categories."""
        return self.categories if self.encoder is None else self.encoder.category_places

    @property
    def held_out(self) -> dict[str, Array]:
        """The test rows; where they belong to clients, with a column "client"."""
        return self.test | ({} if self.test_owners is None else {"client": self.test_owners})


def check(dataset: Dataset) -> None:
    """Raise `UserError` if the data cannot be used for training."""
    for part, columns in (("train", dataset.train), ("test", dataset.test)):
        where = f"{dataset.name}, {part} rows"
        for needed in ("x", "y"):
            if needed not in columns:
                raise UserError(f"{where}: column {needed!r} is missing; both x and y are needed")
        _check_rows(where, columns, dataset.features)
        if dataset.target is None:
            most = 1 << dataset.classes if dataset.sets else dataset.classes
            _check_labels(where, columns["y"], most)
    if len(dataset.labels) != dataset.classes:
        raise UserError(
            f"{dataset.name}: {len(dataset.labels)} names for {dataset.classes} classes; each "
            "class needs one"
        )
    if set(dataset.train) != set(dataset.test):
        raise UserError(
            f"{dataset.name}: train has the columns {sorted(dataset.train)} and test has "
            f"{sorted(dataset.test)}; both need the same"
        )
    if dataset.sets:
        check_two_values(dataset.name, dataset.train["y"], dataset.labels)
    elif dataset.target is None and len(np.unique(dataset.train["y"])) < 2:
        raise UserError(
            f"{dataset.name}: all training rows have the one label "
            f"{dataset.labels[dataset.train['y'][0]]!r}; at least two classes are needed"
        )


def _check_rows(where: str, columns: dict[str, Array], features: tuple[str, ...]) -> None:
    x = columns["x"]
    if x.ndim != 2 or x.shape[1] != len(features):
        raise UserError(
            f"{where}: x has the shape {x.shape}; it should be (rows, {len(features)}), "
            "one column for each feature name"
        )
    if x.size == 0:
        raise UserError(f"{where}: x is empty, shape {x.shape}; give at least one row and column")
    for name, values in columns.items():
        if values.ndim == 0 or len(values) != len(x):
            raise UserError(
                f"{where}: column {name!r} has {values.size} rows where x has {len(x)}; "
                "every column needs one row per sample"
            )
        if values.dtype.kind not in "biuf":
            raise UserError(
                f"{where}: column {name!r} is of type {values.dtype}; it should hold numbers"
            )
        flat = values.reshape(len(values), -1)
        _finite(where, features if name == "x" else (name,) * flat.shape[1], flat)


def _check_labels(where: str, y: Array, classes: int) -> None:
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise UserError(
            f"{where}: labels y are of type {y.dtype}, shape {y.shape}; "
            "they should be one whole number per row"
        )
    bad = np.flatnonzero((y < 0) | (y >= classes))
    if len(bad):
        raise UserError(
            f"{where}: labels out of range: row {bad[0] + 1} has label {y[bad[0]]}; "
            f"labels should be 0 to {classes - 1}"
        )


def from_arrays(
    name: str,
    train: Mapping[str, Array],
    test: Mapping[str, Array],
    scale: float | None,
    fraction: float,
    seed: int,
    keep: Sequence[str] = (),
    kind: TargetKind = "class",
    label: LabelName = "y",
) -> Dataset:
    """Make a data set from the arrays x, y and those in `keep`; without `scale`, standardise x.

    If `test` is empty, `fraction` of each class is set aside for testing. `kind` is what y holds;
    label sets are those of several labels, which `label` names.
    """
    check_keep(name, keep, [c for c in train if c not in ("x", "y")])
    for part in (train, test):
        if any(v.ndim == 0 or len(v) != len(part["x"]) for v in part.values()):
            raise UserError(f"{name}: the arrays differ in rows; each needs one row per sample")
    if test and train["x"].shape[1:] != test["x"].shape[1:]:
        raise UserError(
            f"{name}: x has rows of shape {train['x'].shape[1:]} and x_test of "
            f"{test['x'].shape[1:]}; they should be the same"
        )
    both = {k: np.concatenate([v, test[k]]) if test else v for k, v in train.items()}
    x = both["x"].reshape(len(both["x"]), -1) if both["x"].size else np.zeros((0, 0))
    features = tuple(f"x{j}" for j in range(x.shape[1]))
    if x.dtype.kind not in "biuf" or not x.size:
        raise UserError(f"{name}: x is {x.dtype}, shape {x.shape}; it should hold rows of numbers")
    y, labels = numbered_target(name, both["y"], kind)
    labels = label if isinstance(label, tuple) else labels
    rows = np.arange(len(y)) < len(train["y"])
    if not test:
        rows = in_train(name, strata_of(y, kind), fraction, seed)
    unit = None
    if kind not in NAMED:
        unit = target_scale(name, _target_moments(y[rows]), kind)
        y = unit.encode(y)
    encoder = None
    if scale is None:
        _finite(name, features, x)
        mean, deviation = _moments(name, features, x[rows])
        x = standardise(x, mean, deviation)
        made = zip(features, mean.tolist(), deviation.tolist(), strict=True)
        encodings = tuple(NumberEncoding(f, m, False, m, d) for f, m, d in made)
        encoder = Encoder(encodings, label if isinstance(label, tuple) else "y", labels)
    beside, named = columns_beside(name, both, keep)
    columns = {"x": x, "y": y, **beside}
    own, held = ({k: v[part] for k, v in columns.items()} for part in (rows, ~rows))
    return Dataset(
        name=name,
        train=own,
        test=held,
        classes=len(labels),
        scale=scale or 1.0,
        features=features,
        labels=labels,
        kinds=named,
        encoder=encoder,
        target=unit,
        sets=kind == "labels",
    )


def in_train(name: str, y: Array, fraction: float, seed: int) -> Array:
    """Mark the training rows with `stratified`; a UserError if no row could be set aside."""
    train = stratified(y, fraction, seed)
    if train.all():
        classes = len(np.unique(y))
        number = '; is it a number? then set problem.task = "regression"' if classes > 20 else ""
        raise UserError(
            f"{name}: too few rows to set aside {fraction:g} of each class for testing (rows: "
            f"{len(y)}, classes: {classes}); give more rows, a larger test_fraction or another "
            f"label{number}"
        )
    return train


def stratified(y: Array, fraction: float, seed: int, owners: Array | None = None) -> Array:
    """Mark the rows to keep: all but `fraction` of each class, drawn by the seed.

    Rows that have `owners` are drawn at each of them, as sites do.
    """
    if owners is not None:
        mine = np.ones(len(y), bool)
        for owner in np.unique(owners):
            own = owners == owner
            mine[own] = stratified(y[own], fraction, seed)
        return mine
    rng = np.random.default_rng(seed)
    kept = np.ones(len(y), bool)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        kept[rows[: min(round(fraction * len(rows)), len(rows) - 1)]] = False
    return kept


def numbered_target(name: str, raw: Array, kind: TargetKind) -> tuple[Array, tuple[Label, ...]]:
    """Return classes 0 .. L-1 and their names, or label sets or numbers as they are."""
    if kind == "labels":
        return raw, ()
    return numbered_labels(name, raw) if kind == "class" else (target_numbers(name, raw, kind), ())


def _target_moments(y: Array) -> tuple[float, float, float]:
    mean = float(y.mean())
    return float(len(y)), mean, float(np.square(y - mean).sum())


def numbered_labels(name: str, raw: Array) -> tuple[Array, tuple[Label, ...]]:
    """Return labels 0 .. L-1, in the sorted order of the raw labels, and the names of classes."""
    if raw.ndim != 1 or raw.dtype.kind not in "biufU":
        raise UserError(
            f"{name}: labels have shape {raw.shape}, {raw.dtype}; give one label per row"
        )
    if missing_cells(raw).any():
        row = int(np.flatnonzero(missing_cells(raw))[0])
        raise UserError(
            f"{name}: the label is missing in row {row + 1}; fill in or leave out such rows"
        )
    if raw.dtype.kind == "f":
        _finite(name, ("y",), raw[:, None])
        bad = np.flatnonzero(raw != np.rint(raw))
        if len(bad):
            raise UserError(
                f"{name}: labels out of range: row {bad[0] + 1} has label {raw[bad[0]]}; "
                "labels should be whole numbers or text: compare numbers with one of them "
                '(label = "price > 100"), or predict the number: problem.task = "regression"'
            )
    kinds, y = np.unique(raw, return_inverse=True)
    if len(kinds) > 1000:
        raise UserError(
            f"{name}: labels out of range: {len(kinds)} different labels in {len(raw)} rows; "
            'at most 1000 classes: is this the label column, or problem.task = "regression"?'
        )
    return y.astype(np.int32), class_names(kinds)


def _moments(name: str, features: Sequence[str], x: Array) -> tuple[Array, Array]:
    """Return mean and deviation of every column; the deviation of a constant column is 0."""
    seen = x.astype(np.float64)
    constant = seen.min(axis=0) == seen.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = seen.mean(axis=0), np.where(constant, 0.0, seen.std(axis=0))
        wrong = ~np.isfinite(mean) | ~np.isfinite(deviation) | ((deviation == 0) & ~constant)
    if wrong.any():
        column = features[np.flatnonzero(wrong)[0]]
        raise UserError(f"{name}: column {column!r} is too large or small; rescale it")
    return mean, deviation


def columns_beside(
    name: str, table: Mapping[str, Array], keep: Sequence[str]
) -> tuple[dict[str, Array], dict[str, tuple[str, ...]]]:
    """Return the columns to keep beside x as numbers, and the values of those that are text."""
    cells: dict[str, Array] = {}
    for column in keep:
        values = table[column]
        if not is_text(values):
            _finite(name, (column,), values[:, None])
        cells[column] = named_cells(values) if is_text(values) else values
    kinds = {column: tuple(kinds_of(v)) for column, v in cells.items() if is_text(v)}
    return {column: codes(v, kinds.get(column)) for column, v in cells.items()}, kinds


def _finite(name: str, features: Sequence[str], x: Array) -> None:
    if x.dtype.kind != "f":
        return
    for start in range(0, len(x), BLOCK):
        bad = ~np.isfinite(x[start : start + BLOCK])
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise UserError(
                f"{name}: column {features[column]!r} holds {x[start + row, column]} in row "
                f"{start + row + 1}; fill or drop such rows first"
            )


def check_keep(name: str, keep: Sequence[str], known: Sequence[str]) -> None:
    """Raise `UserError` if a column that is to stand beside x is not known."""
    for column in keep:
        if column not in known or column in ("x", "y"):
            there = ", ".join(known) or "none"
            raise UserError(
                f"{name}: no column {column!r} to keep or to make groups of; columns: {there}"
            )
