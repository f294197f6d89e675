"""A trained model as an estimator of scikit-learn that takes raw rows, and its pickle."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from fedssca.errors import UserError
from fedssca.run.estimators.frames import is_frame
from fedssca.run.export.files import write_file
from fedssca.run.model import TrainedModel

__all__ = ["ExportedClassifier", "ExportedRegressor", "export_classifier"]

Array = np.ndarray


class _Exported(BaseEstimator):  # type: ignore[misc]
    """An estimator with the model of a run; `fit` leaves it as it is, also in a Pipeline.

    Rows are a DataFrame, whose columns are found by name, or an array with the columns of
    `feature_names_in_` in this order. They are raw: text and missing cells are encoded.
    """

    def __init__(self, model: TrainedModel) -> None:
        self.model = model

    @property
    def feature_names_in_(self) -> Array:
        """The raw columns that the model needs."""
        return np.array(self.model.inputs, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of these columns."""
        return len(self.model.inputs)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Leave the model as it is: its run has trained it."""
        del X, y
        return self

    def predict(self, X: Any) -> Array:
        """The most likely class of every row, by name, or its number."""
        return self.model.predict(self._columns(X))

    def _columns(self, rows: Any) -> dict[str, Any]:
        if is_frame(rows):
            return {str(name): np.asarray(rows[name]) for name in rows.columns}
        cells, names = np.asarray(rows, dtype=object), self.model.inputs
        if cells.ndim != 2 or cells.shape[1] != len(names):
            raise UserError(
                f"X has the shape {cells.shape}; a DataFrame is needed, or an array with the "
                f"{len(names)} columns {', '.join(names[:10])}{', ...' if names[10:] else ''}"
            )
        return dict(zip(names, cells.T, strict=True))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> Self:
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags


class ExportedClassifier(ClassifierMixin, _Exported):  # type: ignore[misc]
    """A classifier with the model of a run, which takes raw rows."""

    @property
    def classes_(self) -> Array:
        """The names of the classes or labels, in the order of the columns of `predict_proba`."""
        return np.array(self.model.classes)

    def predict_proba(self, X: Any) -> Array:
        """The probability of every class or label for every row, (rows, classes)."""
        return self.model.predict_proba(self._columns(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = not self.model.exclusive
        return tags


class ExportedRegressor(RegressorMixin, _Exported):  # type: ignore[misc]
    """A regressor with the model of a run, which takes raw rows."""


def export_classifier(model: TrainedModel, path: Path) -> list[Path]:
    """Write the pickle of a model as an estimator of scikit-learn; returns its path."""
    if model.apart:
        raise UserError(
            "no party has all columns of this model, so that no single estimator can encode rows: "
            "use --onnx, which writes one file per party"
        )
    made = ExportedClassifier(model) if model.target is None else ExportedRegressor(model)
    return [write_file(path, pickle.dumps(made), "--sklearn")]
