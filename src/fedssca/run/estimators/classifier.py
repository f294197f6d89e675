"""A classifier with the interface of scikit-learn, trained over clients with constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin

from fedssca.data.classes import class_names
from fedssca.data.encode.label_sets import check_label_names, check_two_values
from fedssca.errors import UserError
from fedssca.problem.constraints import TrainingRows
from fedssca.problem.tasks import CLASSIFICATION, multilabel
from fedssca.problem.weights import class_weights
from fedssca.run.estimators.clients import ClientColumns
from fedssca.run.estimators.federated import FederatedEstimator, LabelledParts

__all__ = ["FederatedClassifier"]


class FederatedClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]
    """A classifier that is trained over several clients and keeps stated limits.

    `model` is "mlp" (with `hidden` units, or a list of them), "linear" or a `fedssca.Model`.
    `constraints` may contain mappings as in a TOML file
    ({"kind": "fnr", "limit": 0.1, "positive": "sick"}), constraints, lists of them, and functions
    of the training columns that return them. These columns are "x", "y" (numbered in the order of
    `classes_`), "classes" (which are `classes_`), "client", and further columns of the clients.

    With `objective` "norm" the model has the smallest |w|^2 that keeps the constraints, with "loss"
    the smallest loss + `l2` |w|^2. "worst_client" takes the largest loss of a client instead,
    "worst_group" that of a group of rows with the same value in `column`. Step sizes are found from
    the data. With `rounds` "auto" it trains until it has converged, for at most `max_rounds`
    rounds. `verbose` shows a progress line.

    Arrays, and DataFrames of numbers, are used as they are: scale them first, with the same numbers
    for all clients. A DataFrame with text, dates or missing cells is encoded as the table of a run
    is: numbers are standardised, categories become columns of zeros and ones, missing numbers are
    the mean and are marked in a further column, and ids are left out. `encode` True encodes
    everything, False nothing. Limits name the columns of a DataFrame. `keep` has columns that
    functions of yours need beside x, and `drop` columns that are no features; limits can name them
    all the same.

    `class_weight` are the weights of the classes in the objective: "balanced", or a mapping from
    classes to numbers; others weigh 1.

    A table of zeros and ones as y means several labels at once, one column each: the loss is the
    mean of their binary cross-entropies, predictions are such tables, and `positive` of a limit is
    the name of a column of a DataFrame, or else the number of a column.

    With a `confidence` the limits are promised for new rows with that probability: the share
    `calibration_fraction` of the rows takes no part in training and tests them. `certify` is
    "pooled" (new rows of all clients together) or "each_site" (those of every single client).

    After `fit` there are `result_` (a `fedssca.Result`), `feasible_` (whether all constraints hold
    on the training data), `converged_`, `certified_` (whether they are promised for new rows; None
    without a confidence), `classes_`, `multilabel_` (whether y was a table of several labels),
    `n_features_in_`, `feature_names_in_` (of a DataFrame) and `encoder_` (None if x is used as it
    is). What is to be said of the model, such as
    limits that are broken or training that is not finished, is a warning.
    """

    classes_: np.ndarray
    multilabel_: bool

    @property
    def _several(self) -> bool:
        return self.multilabel_

    def _class_weights(self, known: TrainingRows) -> np.ndarray | None:
        if self.class_weight is None:
            return None
        return class_weights(self.class_weight, known.columns["y"], known.classes, "class_weight")

    def _labelled(
        self, parts: Sequence[ClientColumns], aside: Sequence[np.ndarray], names: Sequence[str]
    ) -> LabelledParts:
        del aside
        if names:
            return self._labelled_sets(parts, names)
        classes = np.unique(np.concatenate([part["y"] for part in parts]))
        if len(classes) < 2:
            raise UserError(
                f"all labels are {classes[0]}, which is 1 class: a classifier needs at least "
                "2 classes"
            )
        self.classes_ = classes
        coded = [
            {**part, "y": np.searchsorted(classes, part["y"]).astype(np.int32)} for part in parts
        ]
        self.multilabel_ = False
        return LabelledParts(coded, class_names(classes), CLASSIFICATION)

    def _labelled_sets(self, parts: Sequence[ClientColumns], names: Sequence[str]) -> LabelledParts:
        """The clients with label sets as y."""
        if self.class_weight is not None:
            raise UserError("class_weight is for one label per row: use sample_weight")
        check_label_names("y", names)
        check_two_values("y", np.concatenate([part["y"] for part in parts]), names)
        numbered = list(names) == [str(place) for place in range(len(names))]
        self.classes_ = np.arange(len(names)) if numbered else np.array(names)
        self.multilabel_ = True
        return LabelledParts(list(parts), names, multilabel(names))

    @property
    def _outputs(self) -> int:
        return len(self.classes_)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return scores (rows, classes); for two classes score 1 minus score 0, (rows,)."""
        scores = self._scores(X)
        two = len(self.classes_) == 2 and not self.multilabel_
        return scores[:, 1] - scores[:, 0] if two else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the highest score of every row, as one of `classes_`.

        Of several labels it is a table of zeros and ones, (rows, labels).
        """
        scores = self._scores(X)
        if self.multilabel_:
            return np.asarray(scores > 0, int)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes or labels, in the order of `classes_`."""
        scores = self._scores(X)
        if self.multilabel_:  # in double precision, so that the order of large scores is kept
            return np.asarray(expit(scores.astype(np.float64)))
        return np.asarray(jax.nn.softmax(scores, axis=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
