"""Data larger than memory: a folder of NPY files that are read in place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedssca.data.dataset import BLOCK, Array, Dataset
from fedssca.data.encode import TargetKind
from fedssca.errors import UserError

__all__ = ["mapped"]

KINDS = ("uint8", "float32")


def mapped(
    folder: Path, label: str = "y", keep: Sequence[str] = (), kind: TargetKind = "class"
) -> Dataset:
    """Open the arrays x, `label` and those in `keep`, each as NAME.npy and NAME_test.npy.

    x (rows, features) is uint8 or float32 and is never copied, so it is not standardised; the model
    divides uint8 values by the largest one. Labels are whole numbers from 0 on.
    """
    if kind != "class":
        raise UserError(
            f"{folder} is a folder of arrays, whose labels are classes: numbers, or several labels "
            "at once, need a table or an NPZ file"
        )
    train, test = (
        {name: _open(folder / f"{stem}{end}.npy") for name, stem in _names(label, keep)}
        for end in ("", "_test")
    )
    for part in (train, test):
        x = part["x"]
        if x.ndim != 2 or x.dtype.name not in KINDS:
            raise UserError(
                f"{folder}: x is {x.dtype}, shape {x.shape}; it should be (rows, features) of "
                "uint8, or of float32 with numbers near 1: it is used as it is"
            )
        part["y"] = _whole(folder, part["y"])
    if train["x"].shape[1] != test["x"].shape[1] or train["x"].dtype != test["x"].dtype:
        raise UserError(
            f"{folder}: x is {train['x'].dtype} with {train['x'].shape[1]} features, x_test "
            f"{test['x'].dtype} with {test['x'].shape[1]}; they should be alike"
        )
    features = tuple(f"x{j}" for j in range(train["x"].shape[1]))
    classes = 1 + max(int(part["y"].max(initial=0)) for part in (train, test))
    return Dataset(folder.name, train, test, classes, _scale(train["x"]), features)


def _names(label: str, keep: Sequence[str]) -> list[tuple[str, str]]:
    return [("x", "x"), ("y", label), *((column, column) for column in keep)]


def _open(path: Path) -> Array:
    if not path.is_file():
        raise UserError(
            f"{path} is not there; a folder of data holds x.npy, y.npy, x_test.npy and y_test.npy "
            "(write them with numpy.save)"
        )
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{path} cannot be read as an NPY file of numbers: {error}") from None


def _whole(folder: Path, y: Array) -> Array:
    """Load labels as int32, which takes four bytes per row."""
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise UserError(
            f"{folder}: labels are {y.dtype}, shape {y.shape}; give one whole number per row, 0 to "
            "classes - 1"
        )
    return np.asarray(y, np.int32)


def _scale(x: Array) -> float:
    if x.dtype != np.uint8:
        return 1.0
    most = max((int(x[i : i + BLOCK].max()) for i in range(0, len(x), BLOCK)), default=1)
    return 1 / max(1, most)
