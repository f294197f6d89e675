"""The rows of the clients of an estimator: arrays with the same columns, checked."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import type_of_target

from fedssca.data.encode.label_sets import label_sets
from fedssca.errors import UserError
from fedssca.problem.weights import SAMPLE_WEIGHT, sample_weights
from fedssca.run.estimators.frames import is_frame

__all__ = [
    "ClientColumns",
    "check_same_features",
    "checked",
    "features",
    "names_of_labels",
    "parties_of",
    "with_weights",
    "without_text",
]

ClientColumns = dict[str, np.ndarray]


class NotNumbersError(UserError, TypeError):
    """A cell of X is of a type that no number can be made of; scikit-learn expects a TypeError."""


def parties_of(parties: Any) -> list[Any]:
    """Return the clients as mappings."""
    table = isinstance(parties, np.ndarray | Mapping | str) or is_frame(parties)
    if table or not isinstance(parties, Iterable):
        raise UserError(
            "labels are missing: the estimator requires y to be passed, but the target y is None; "
            "use fit(X, y), or fit([(X1, y1), (X2, y2), ...])"
        )
    parts = list(parties)
    if not parts:
        raise UserError("there are no parties: give at least one (X, y)")
    made = []
    for i, part in enumerate(parts):
        if isinstance(part, Mapping):
            if not {"x", "y"} <= set(part):
                raise UserError(
                    f'client {i} has {sorted(part)}: the columns "x" and "y" are needed'
                )
            made.append(dict(part))
        elif isinstance(part, Sequence) and not isinstance(part, str) and len(part) == 2:
            made.append({"x": part[0], "y": part[1]})
        else:
            raise UserError(f'client {i} must be a pair (X, y) or a mapping with "x" and "y"')
    return made


def with_weights(parts: Sequence[dict[str, Any]], weights: Any) -> list[dict[str, Any]]:
    """Return the clients with the weights of their rows, one array for each client."""
    if len(weights) != len(parts):
        raise UserError(
            f"sample_weight has {len(weights)} arrays for {len(parts)} clients: give one for each"
        )
    made = []
    for part, own in zip(parts, weights, strict=True):
        found = sample_weights("sample_weight", np.asarray(own))
        if len(found) != len(np.atleast_1d(np.asarray(part["y"]))):
            raise UserError(
                f"sample_weight has {len(found)} rows, y has {len(np.asarray(part['y']))}"
            )
        made.append({**part, SAMPLE_WEIGHT: found})
    return made


def checked(part: Mapping[str, Any], of: str, numbers: bool = False) -> ClientColumns:
    """Return the columns of one client as arrays for training; errors begin with `of`.

    `numbers` says that y holds numbers, and not classes or a table of several labels.
    """
    x, y = features(part["x"], of), np.asarray(part["y"])
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            f"{of}A column-vector y was passed when a 1d array was expected: one label per row is "
            "taken from it",
            DataConversionWarning,
            stacklevel=3,
        )
        y = y[:, 0]
    if y.ndim != 1 and (numbers or y.ndim > 2):
        raise UserError(f"{of}y has shape {y.shape}: one label per row is needed")
    if not len(x):
        raise UserError(f"{of}there are no rows: leave that party out")
    others = {
        name: _texts(np.asarray(column)) for name, column in part.items() if name not in ("x", "y")
    }
    for name, column in {"y": y, **others}.items():
        if len(np.atleast_1d(column)) != len(x):
            raise UserError(f"{of}{name} has {len(np.atleast_1d(column))} rows, x has {len(x)}")
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise UserError(f"{of}{name} holds NaN or infinite values")
        if name != "y" and column.dtype.kind not in "fiubU":
            raise UserError(f"{of}{name} holds {column.dtype} values: give numbers or text")
    if y.ndim == 2:
        return {**others, "x": x, "y": label_sets(y)}
    if y.dtype.kind == "O":
        y = _as_numbers(y, of) if numbers else _plain(y, of)
    if not numbers and y.dtype.kind == "f" and type_of_target(y) not in ("binary", "multiclass"):
        raise UserError(
            f"{of}y holds fractions, which is a continuous target: a classifier needs class labels "
            "(FederatedRegressor predicts numbers)"
        )
    return {**others, "x": x, "y": y}


def names_of_labels(parts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of several labels: the columns of y, or else their numbers as text.

    They are empty if y has one label per row. All clients need the same.
    """
    found = []
    for part in parts:
        y = part["y"]
        shape = np.asarray(y).shape
        names = y.columns if is_frame(y) else range(shape[1] if len(shape) == 2 else 0)
        found.append(tuple(map(str, names)) if len(shape) == 2 and shape[1] > 1 else ())
    for i, names in enumerate(found[1:], start=1):
        if names != found[0]:
            raise UserError(
                f"client {i} has the labels {', '.join(names) or 'of one column'}, client 0 has "
                f"{', '.join(found[0]) or 'one column'}: all need the same"
            )
    return found[0]


def _texts(column: np.ndarray) -> np.ndarray:
    """Convert a column of texts in an object array, as pandas gives it."""
    if column.dtype.kind == "O" and all(isinstance(value, str) for value in column):
        return column.astype(str)
    return column


def _plain(y: np.ndarray, of: str) -> np.ndarray:
    """Convert labels in an object array, as pandas gives them: all are texts or all numbers."""
    if all(isinstance(label, str) for label in y):
        return y.astype(str)
    if all(isinstance(label, bool | int | np.integer | np.bool_) for label in y):
        return np.array(y.tolist())
    raise UserError(
        f"{of}y mixes types of labels or lacks some: use texts only or whole numbers only"
    )


def _as_numbers(y: np.ndarray, of: str) -> np.ndarray:
    """Convert targets in an object array, as pandas gives them."""
    try:
        found = y.astype(np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{of}y holds text or mixed types: a regressor needs numbers") from None
    if not np.isfinite(found).all():
        raise UserError(f"{of}y holds NaN or infinite values")
    return found


def features(values: Any, of: str) -> np.ndarray:
    """Return x as float32, or as uint8 if it is uint8."""
    if hasattr(values, "toarray"):
        raise UserError(f"{of}X is sparse: use X.toarray()")
    try:
        x = np.asarray(values)
        if x.dtype.kind == "c":
            raise UserError(f"{of}Complex data not supported: X must be a table of real numbers")
        if x.dtype != np.uint8:
            x = x.astype(np.float32)
    except TypeError as error:
        raise NotNumbersError(f"{of}X must be a table of numbers: {error}") from None
    except UserError:
        raise
    except ValueError:
        raise UserError(
            f"{of}X must be a table of numbers; text is encoded in a DataFrame, or with encode=True"
        ) from None
    if x.ndim == 2 and not x.shape[1]:
        raise UserError(
            f"{of}X has 0 feature(s) (shape={x.shape}) while a minimum of 1 is required."
        )
    if x.ndim != 2:
        raise UserError(
            f"{of}X has shape {x.shape}: (rows, features) is needed. Reshape your data, such as "
            "X.reshape(1, -1) for one row"
        )
    if x.dtype != np.uint8 and not np.isfinite(x).all():
        raise UserError(
            f"{of}X holds NaN or infinite values: fill or drop them first, or let encode=True fill "
            "missing cells"
        )
    return x


def check_same_features(parts: Sequence[ClientColumns]) -> None:
    """Raise a UserError unless all clients have the same features and type of labels."""
    first = parts[0]
    for i, part in enumerate(parts[1:], start=1):
        if part["x"].shape[1] != first["x"].shape[1]:
            raise UserError(
                f"client {i} has {part['x'].shape[1]} features, client 0 has "
                f"{first['x'].shape[1]}: all need the same"
            )
        if (part["y"].dtype.kind in "US") != (first["y"].dtype.kind in "US"):
            raise UserError(
                f"client {i} has labels of another type than client 0: use text or numbers"
            )
        if part["x"].dtype != first["x"].dtype:
            raise UserError(
                f"client {i} has x of type {part['x'].dtype}, client 0 of {first['x'].dtype}: "
                "convert one"
            )


def without_text(
    parts: Sequence[ClientColumns],
) -> tuple[list[ClientColumns], dict[str, tuple[str, ...]]]:
    """Return further columns of text as numbers, and the values that these stand for."""
    kinds: dict[str, tuple[str, ...]] = {}
    for name in parts[0]:
        if name not in ("x", "y") and all(part[name].dtype.kind == "U" for part in parts):
            found = np.unique(np.concatenate([part[name] for part in parts]))
            kinds[name] = tuple(map(str, found))
    return [
        part | {k: np.searchsorted(v, part[k]).astype(np.int32) for k, v in kinds.items()}
        for part in parts
    ], kinds
