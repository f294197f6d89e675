"""A classifier with the interface of scikit-learn, trained over clients with constraints."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from fedssca.data.calibration import calibration_rows, set_aside
from fedssca.data.classes import class_names
from fedssca.data.encode import Encoder
from fedssca.data.split import Rows, by_sample
from fedssca.errors import UserError
from fedssca.evaluate.confidence import Calibration
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.problem.constraints import TrainingRows, parts_from_config
from fedssca.problem.forms import AnyModel, JoinedModel, Model
from fedssca.problem.models import classifier, linear, mlp
from fedssca.problem.pickling import portable
from fedssca.problem.problem import Problem
from fedssca.run.build.calibrate import auto_for
from fedssca.run.certified import with_certificate
from fedssca.run.estimators.clients import (
    ClientColumns,
    check_same_features,
    checked,
    features,
    parties_of,
    without_text,
)
from fedssca.run.estimators.frames import (
    columns_beside,
    encoder_of,
    inputs_of,
    is_frame,
    raw_table,
    same_columns,
    wants_encoder,
    without,
)
from fedssca.run.estimators.limits import group_columns, limits_of
from fedssca.run.result import Result
from fedssca.run.schema import AUTO
from fedssca.run.simulate import Checkpoint, simulate
from fedssca.run.stages import FIRST, for_rounds, until_converged

__all__ = ["FederatedClassifier"]

CHUNK = 4096
"""The number of rows that are predicted at a time."""


class FederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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

    With a `confidence` the limits are promised for new rows with that probability: the share
    `calibration_fraction` of the rows takes no part in training and tests them. `certify` is
    "pooled" (new rows of all clients together) or "each_site" (those of every single client).

    After `fit` there are `result_` (a `fedssca.Result`), `feasible_` (whether all constraints hold
    on the training data), `converged_`, `certified_` (whether they are promised for new rows; None
    without a confidence), `classes_`, `n_features_in_`, `feature_names_in_` (of a
    DataFrame) and `encoder_` (None if x is used as it is). What is to be said of the model, such as
    limits that are broken or training that is not finished, is a warning.
    """

    result_: Result
    feasible_: bool
    converged_: bool
    certified_: bool | None
    classes_: np.ndarray
    n_features_in_: int
    encoder_: Encoder | None

    def __init__(
        self,
        model: str | AnyModel = "mlp",
        hidden: int | Sequence[int] = 64,
        constraints: Any = (),
        objective: str = "loss",
        l2: float = 1e-4,
        rounds: int | Literal["auto"] = 300,
        batch: int = 32,
        seed: int = 0,
        column: str | None = None,
        max_rounds: int = 10_000,
        verbose: bool = False,
        encode: bool | Literal["auto"] = "auto",
        keep: Sequence[str] = (),
        drop: Sequence[str] = (),
        confidence: float | None = None,
        calibration_fraction: float = 0.2,
        certify: Literal["pooled", "each_site"] = "pooled",
    ) -> None:
        self.model = model
        self.hidden = hidden
        self.constraints = constraints
        self.objective = objective
        self.l2 = l2
        self.rounds = rounds
        self.batch = batch
        self.seed = seed
        self.column = column
        self.max_rounds = max_rounds
        self.verbose = verbose
        self.encode = encode
        self.keep = keep
        self.drop = drop
        self.confidence = confidence
        self.calibration_fraction = calibration_fraction
        self.certify = certify

    def fit(self, X: Any, y: Any = None, clients: int = 5) -> FederatedClassifier:
        """Train with `fit(parties)` or with `fit(X, y, clients)`.

        `parties` is a list with one (X, y) or {"x": ..., "y": ...} per client. X and y are divided
        at random among `clients` clients. The batch is at most the rows of the smallest client.
        """
        if self.batch < 1:
            raise UserError(f"batch = {self.batch}: it must be at least 1")
        given = parties_of(X) if y is None else [{"x": X, "y": y}]
        aside = self._set_aside(given)
        parts = self._encoded(given, y is None, aside)
        check_same_features(parts)
        classes = np.unique(np.concatenate([part["y"] for part in parts]))
        if len(classes) < 2:
            raise UserError(
                f"all labels are {classes[0]}, which is 1 class: a classifier needs at least "
                "2 classes"
            )
        parts, kinds = without_text(parts)
        coded = [
            {**part, "y": np.searchsorted(classes, part["y"]).astype(np.int32)} for part in parts
        ]
        rows = Rows.of(coded) if y is None else by_sample(coded[0], clients, seed=self.seed)
        self.classes_ = classes
        rows, promise = self._promise(rows, aside)
        known = TrainingRows(rows.beside(), class_names(classes), rows.sizes, None, kinds)
        limits = limits_of(self.constraints, rows, known)
        problem = classifier(
            self._network(),
            limits,
            objective=self.objective,
            l2=self.l2,
            seed=self.seed,
            **parts_from_config(self.objective, self.column, known),
        )
        batch = min(self.batch, *rows.sizes)
        self.result_ = self._train(problem, rows, batch)
        if promise is not None:
            evaluator = evaluator_over(problem, rows, None)
            self.result_ = with_certificate(problem, evaluator, rows, self.result_, promise)
        self.certified_ = None if promise is None else bool(self.result_.certificate["certified"])
        self.feasible_, self.converged_ = self.result_.feasible, self.result_.converged
        if self.result_.notes:
            warnings.warn("\n".join(self.result_.notes), ConvergenceWarning, stacklevel=2)
        return self

    def _set_aside(self, parts: Sequence[dict[str, Any]]) -> list[np.ndarray]:
        """Mark the calibration rows of every client; none without a confidence."""
        sizes = [len(np.atleast_1d(np.asarray(part["y"]))) for part in parts]
        if self.confidence is None:
            return [np.zeros(size, bool) for size in sizes]
        shares = {"confidence": self.confidence, "calibration_fraction": self.calibration_fraction}
        for name, value in shares.items():
            if not 0 < value < 1:
                raise UserError(f"{name} = {value}: it must lie between 0 and 1")
        if self.certify not in ("pooled", "each_site"):
            raise UserError(f'certify = {self.certify!r}: it must be "pooled" or "each_site"')
        marks = calibration_rows(sum(sizes), self.calibration_fraction, self.seed)
        return np.split(marks, np.cumsum(sizes)[:-1])

    def _promise(self, rows: Rows, aside: Sequence[np.ndarray]) -> tuple[Rows, Calibration | None]:
        """The clients without their calibration rows, and what is to be promised with these."""
        if self.confidence is None:
            return rows, None
        left, held = set_aside(rows, np.concatenate(aside))
        assert isinstance(left, Rows)
        each = self.certify == "each_site"
        return left, Calibration(held, self.confidence, each, clients=left.count)

    def _encoded(
        self, parts: Sequence[dict[str, Any]], several: bool, aside: Sequence[np.ndarray]
    ) -> list[ClientColumns]:
        """Return the columns of all clients as arrays, with the group columns of DataFrames.

        Statistics of the encoding are those of the rows that are not set `aside`.
        """
        of = [f"client {i}: " if several else "" for i in range(len(parts))]
        given = [part["x"] for part in parts]
        named = [*group_columns(self.constraints), *([self.column] if self.column else ())]
        x = same_columns(given, self.drop, self.keep)
        found = [
            columns_beside(part["x"], [n for n in (*named, *self.keep) if n not in part], o)
            for part, o in zip(parts, of, strict=True)
        ]
        self.encoder_, first = None, x[0]
        if wants_encoder(self.encode, x):
            tables = [raw_table(own, o) for own, o in zip(x, of, strict=True)]
            fitted = [_without_rows(table, own) for table, own in zip(tables, aside, strict=True)]
            self.encoder_ = encoder_of(fitted, self.keep)
            x = [inputs_of(self.encoder_, table, o) for table, o in zip(tables, of, strict=True)]
            for name, why in self.encoder_.left_out.items():
                said = f"column {name!r} is left out: {why}; keep=[{name!r}] uses it"
                warnings.warn(said, UserWarning, stacklevel=3)
        made = [
            checked({**beside, **part, "x": own}, o)
            for part, own, beside, o in zip(parts, x, found, of, strict=True)
        ]
        validate_data(self, first, skip_check_array=True)
        return made

    def _train(self, problem: Problem, rows: Rows, batch: int) -> Result:
        if isinstance(self.rounds, str) and self.rounds != AUTO:
            raise UserError(f'rounds = {self.rounds!r}: it must be a whole number or "auto"')
        most = self.max_rounds if self.rounds == AUTO else self.rounds
        if most < 1:
            name = "max_rounds" if self.rounds == AUTO else "rounds"
            raise UserError(f"{name} = {most}: at least 1 is needed")
        made = auto_for(problem, rows, batch=batch, rounds=most, seed=self.seed)
        every = max(1, min(most, FIRST if self.rounds == AUTO else most) // 10)

        def train(rounds: int, begin: Checkpoint | None, earlier: Sequence[Any]) -> Result:
            more: Any = {"evaluate_every": every, "resume": begin, "earlier": earlier}
            more["progress"] = self.verbose
            return simulate(problem, rows, made(rounds), rounds, self.seed, **more)

        return (until_converged if self.rounds == AUTO else for_rounds)(train, most)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return scores (rows, classes); for two classes score 1 minus score 0, (rows,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the highest score of every row, as one of `classes_`."""
        picked = self._scores(X).argmax(axis=1)
        return np.asarray(self.classes_[picked])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return softmax(scores), (rows, classes), in the order of `classes_`."""
        return np.asarray(jax.nn.softmax(self._scores(X), axis=1))

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "result_")
        x = self._inputs(X)
        network = self._network()
        params = self.result_.params
        parts = [x[at : at + CHUNK] for at in range(0, max(len(x), 1), CHUNK)]
        return np.concatenate(
            [np.asarray(network.apply(params, jax.numpy.asarray(p))) for p in parts]
        )

    def _inputs(self, X: Any) -> np.ndarray:
        """Return the inputs of the network for new rows, which are like the training rows."""
        x = without(X, self.drop)
        if self.encoder_ is not None and is_frame(x):
            return inputs_of(self.encoder_, raw_table(x, ""), "")
        array = features(x, "") if self.encoder_ is None else x
        try:
            validate_data(self, x, skip_check_array=True, reset=False)
        except ValueError as error:
            raise UserError(str(error)) from None
        if self.encoder_ is None:
            return array
        names = getattr(self, "feature_names_in_", None)
        return inputs_of(self.encoder_, raw_table(x, "", names), "")

    def _network(self) -> AnyModel:
        inputs = len(self.encoder_.features) if self.encoder_ else self.n_features_in_
        classes = len(self.classes_)
        if isinstance(self.model, Model | JoinedModel):
            return _check_fit(self.model, inputs, classes)
        if self.model == "mlp":
            if isinstance(self.hidden, int) and self.hidden < 1:
                raise UserError(f"hidden = {self.hidden}: it must be at least 1")
            return mlp(inputs, self.hidden, classes)
        if self.model == "linear":
            return linear(inputs, classes)
        raise UserError(f'model = {self.model!r}: it must be "mlp", "linear" or a fedssca Model')

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = self.encode is True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return state | {"constraints": portable(self.constraints)}


def _without_rows(table: Mapping[str, np.ndarray], marks: np.ndarray) -> dict[str, np.ndarray]:
    """The table without the marked rows; tables of another length are refused elsewhere."""
    kept = {n: v[~marks] if len(v) == len(marks) else v for n, v in table.items()}
    return kept if marks.any() else dict(table)


def _check_fit(model: AnyModel, features: int, classes: int) -> AnyModel:
    """Return the model if its numbers of features and scores are those of the data."""
    params = model.init(0)
    width = model.width(params)
    rows = jax.ShapeDtypeStruct((1, width), np.float32)
    scores = jax.eval_shape(model.apply, params, rows)
    if (width, scores.shape[1]) != (features, classes):
        raise UserError(
            f"the model takes {width} features and gives {scores.shape[1]} scores, "
            f"the data have {features} features and {classes} classes: build it to fit"
        )
    return model
