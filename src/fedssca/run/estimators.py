"""A classifier with the interface of scikit-learn, trained over clients with constraints."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from fedssca.data.classes import class_names
from fedssca.data.split import Rows, by_sample
from fedssca.errors import UserError
from fedssca.problem.constraints import (
    Constraint,
    TrainingRows,
    from_config,
    parts_from_config,
    target_class,
)
from fedssca.problem.models import Model, classifier, linear, mlp
from fedssca.problem.problem import Problem
from fedssca.run.build.calibrate import auto_for
from fedssca.run.result import Result
from fedssca.run.schema import AUTO
from fedssca.run.simulate import Checkpoint, simulate
from fedssca.run.stages import FIRST, for_rounds, until_converged

__all__ = ["FederatedClassifier"]

ClientColumns = dict[str, np.ndarray]
CHUNK = 4096
"""The number of rows that are predicted at a time."""


class FederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is trained over several clients and keeps stated limits.

    `model` is "mlp" (with `hidden` units), "linear" or a `fedssca.Model`. `constraints` may contain
    mappings as in a TOML file ({"kind": "fnr", "limit": 0.1, "positive": "sick"}), constraints,
    lists of them, and functions of the training columns that return them. These columns are "x",
    "y" (numbered in the order of `classes_`), "classes" (which are `classes_`), "client", and
    further columns of the clients. With `objective` "norm" the model has the smallest |w|^2 that
    keeps the constraints, with "loss" the smallest loss + `l2` |w|^2. "worst_client" takes the
    largest loss of a client instead, "worst_group" that of a group of rows with the same value in
    `column`, one of the clients' further columns. Step sizes are found from the data. With `rounds`
    "auto" it trains until it has converged, for at most `max_rounds` rounds. `verbose` shows a
    progress line.
    Features are used as they are: scale them first, with the same numbers for all clients.

    After `fit` there are `result_` (a `fedssca.Result`), `feasible_` (whether all constraints hold
    on the training data), `converged_`, `classes_` and `n_features_in_`. What is to be said of the
    model, such as limits that are broken or training that is not finished, is a warning.
    """

    result_: Result
    feasible_: bool
    converged_: bool
    classes_: np.ndarray
    n_features_in_: int

    def __init__(
        self,
        model: str | Model = "mlp",
        hidden: int = 64,
        constraints: Any = (),
        objective: str = "loss",
        l2: float = 1e-4,
        rounds: int | Literal["auto"] = 300,
        batch: int = 32,
        seed: int = 0,
        column: str | None = None,
        max_rounds: int = 10_000,
        verbose: bool = False,
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

    def fit(self, X: Any, y: Any = None, clients: int = 5) -> FederatedClassifier:
        """Train with `fit(parties)` or with `fit(X, y, clients)`.

        `parties` is a list with one (X, y) or {"x": ..., "y": ...} per client. X and y are divided
        at random among `clients` clients. The batch is at most the rows of the smallest client.
        """
        if self.batch < 1:
            raise UserError(f"batch = {self.batch}: it must be at least 1")
        parts = _parties(X) if y is None else [{"x": X, "y": y}]
        parts = [_checked(part, f"client {i}" if y is None else "") for i, part in enumerate(parts)]
        _check_same_columns(parts)
        classes = np.unique(np.concatenate([part["y"] for part in parts]))
        if len(classes) < 2:
            raise UserError(f"all labels are {classes[0]!r}: a classifier needs at least 2 classes")
        parts, kinds = _without_text(parts)
        coded = [
            {**part, "y": np.searchsorted(classes, part["y"]).astype(np.int32)} for part in parts
        ]
        rows = Rows.of(coded) if y is None else by_sample(coded[0], clients, seed=self.seed)
        self.classes_ = classes
        self.n_features_in_ = int(rows.columns["x"].shape[1])
        known = TrainingRows(rows.beside(), class_names(classes), rows.sizes, None, kinds)
        limits = _limits(self.constraints, rows, known)
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
        self.feasible_, self.converged_ = self.result_.feasible, self.result_.converged
        if self.result_.notes:
            warnings.warn("\n".join(self.result_.notes), ConvergenceWarning, stacklevel=2)
        return self

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
        x = _features(X, "")
        if x.shape[1] != self.n_features_in_:
            raise UserError(
                f"X has {x.shape[1]} features, the model was trained with {self.n_features_in_}: "
                "give the same columns"
            )
        network = self._network()
        w0, w1 = self.result_.params
        parts = [x[at : at + CHUNK] for at in range(0, max(len(x), 1), CHUNK)]
        return np.concatenate(
            [np.asarray(network.top(w0, network.local(w1, jax.numpy.asarray(p)))) for p in parts]
        )

    def _network(self) -> Model:
        features, classes = self.n_features_in_, len(self.classes_)
        if isinstance(self.model, Model):
            return _check_fit(self.model, features, classes)
        if self.model == "mlp":
            if self.hidden < 1:
                raise UserError(f"hidden = {self.hidden}: it must be at least 1")
            return mlp(features, self.hidden, classes)
        if self.model == "linear":
            return linear(features, classes)
        raise UserError(f'model = {self.model!r}: it must be "mlp", "linear" or a fedssca Model')


def _check_fit(model: Model, features: int, classes: int) -> Model:
    """Return the model if its numbers of features and scores are those of the data."""
    w0, w1 = model.init(0)
    scores = jax.eval_shape(model.top, w0, jax.ShapeDtypeStruct((1, w1.shape[0]), w1.dtype))
    if (w1.shape[1], scores.shape[1]) != (features, classes):
        raise UserError(
            f"the model takes {w1.shape[1]} features and gives {scores.shape[1]} scores, "
            f"the data have {features} features and {classes} classes: build it to fit"
        )
    return model


def _parties(parties: Any) -> list[Any]:
    """Return the clients as mappings."""
    if isinstance(parties, np.ndarray | Mapping | str) or not isinstance(parties, Iterable):
        raise UserError("labels are missing: fit(X, y), or fit([(X1, y1), (X2, y2), ...])")
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


def _checked(part: Mapping[str, Any], who: str) -> ClientColumns:
    """Return the columns of one client as arrays for training."""
    of = f"{who}: " if who else ""
    x, y = _features(part["x"], of), np.asarray(part["y"])
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
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
    if y.dtype.kind == "O":
        y = _plain(y, of)
    if y.dtype.kind == "f" and type_of_target(y) not in ("binary", "multiclass"):
        raise UserError(f"{of}y holds fractions: a classifier needs class labels")
    return {**others, "x": x, "y": y}


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


def _features(values: Any, of: str) -> np.ndarray:
    """Return x as float32, or as uint8 if it is uint8."""
    if hasattr(values, "toarray"):
        raise UserError(f"{of}X is sparse: use X.toarray()")
    try:
        x = np.asarray(values)
        if x.dtype != np.uint8:
            x = x.astype(np.float32)
    except (TypeError, ValueError):
        raise UserError(f"{of}X must be a table of numbers") from None
    if x.ndim != 2 or x.shape[1] < 1:
        raise UserError(f"{of}X has shape {x.shape}: (rows, features) is needed")
    if x.dtype != np.uint8 and not np.isfinite(x).all():
        raise UserError(f"{of}X holds NaN or infinite values: fill or drop them first")
    return x


def _check_same_columns(parts: Sequence[ClientColumns]) -> None:
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


def _without_text(
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


def _limits(constraints: Any, rows: Rows, known: TrainingRows) -> list[Constraint]:
    """Return the constraints from any nesting of lists, mappings and functions of the columns."""
    columns = {**rows.columns, "client": rows.owners(), "classes": np.array(known.classes)}
    made = _flat(constraints, columns, known)
    for constraint in made:
        if constraint.assumed:
            target_class(f"constraint {constraint.name!r}", None, known.classes)
    return made


def _flat(constraints: Any, columns: ClientColumns, rows: TrainingRows) -> list[Constraint]:
    if isinstance(constraints, Constraint):
        return [constraints]
    if isinstance(constraints, Mapping):
        settings = dict(constraints)
        if lacking := [name for name in ("kind", "limit") if name not in settings]:
            raise UserError(f"constraint {settings} has no {lacking[0]}: give kind and limit")
        return from_config(settings.pop("kind"), settings.pop("limit"), settings, rows)
    if callable(constraints):
        return _flat(constraints(columns), columns, rows)
    if isinstance(constraints, Iterable) and not isinstance(constraints, str):
        return [each for part in constraints for each in _flat(part, columns, rows)]
    raise UserError(
        f"constraints holds {constraints!r}: give constraints such as loss_at_most(0.2), mappings "
        'such as {"kind": "loss", "limit": 0.2}, lists of them, or functions of the training '
        "columns"
    )
