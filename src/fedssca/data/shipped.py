"""Tables from the files that scikit-learn ships, without importing it.

Importing scikit-learn takes longer than importing JAX, and the default run needs nothing else of
it. `tests/data/test_shipped.py` compares the tables with those of `sklearn.datasets`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedssca.data.tables import Table
from fedssca.errors import UserError

__all__ = ["breast_cancer", "diabetes", "digits"]

_DIABETES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")
_CELL = ("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity",
         "concave points", "symmetry", "fractal dimension")  # fmt: skip


def digits() -> Table:
    """Return 1797 images of 8 x 8 pixels from 0 to 16 as `x`, and the digits as `y`."""
    raw = _numbers("digits.csv.gz", np.uint8)
    return {"x": raw[:, :-1], "y": raw[:, -1].astype(np.int32)}


def diabetes() -> Table:
    """Return 442 patients, with the progression of their disease after a year."""
    raw = _numbers("diabetes_data_raw.csv.gz", separator=None)
    target = _numbers("diabetes_target.csv.gz")
    return {name: raw[:, j] for j, name in enumerate(_DIABETES)} | {"progression": target}


def breast_cancer() -> Table:
    """Return 569 tumours, with 1 for those that are malignant."""
    raw = _numbers("breast_cancer.csv", skip=1)
    names = [f"mean {name}" for name in _CELL]
    names += [f"{name} error" for name in _CELL]
    names += [f"worst {name}" for name in _CELL]
    return {name: raw[:, j] for j, name in enumerate(names)} | {"malignant": 1.0 - raw[:, -1]}


def _numbers(
    file: str, kind: type = float, separator: str | None = ",", skip: int = 0
) -> np.ndarray:
    found = find_spec("sklearn")
    places = (found.submodule_search_locations if found else None) or [""]
    path = Path(places[0]) / "datasets" / "data" / file
    if not path.is_file():
        raise UserError(f"{path} is not there, which comes with scikit-learn: install it again")
    return np.loadtxt(path, kind, delimiter=separator, skiprows=skip)
