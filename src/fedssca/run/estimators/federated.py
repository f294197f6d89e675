"""What estimators with the interface of scikit-learn have in common: fit over clients, scores."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from fedssca.data.calibration import calibration_rows, set_aside
from fedssca.data.classes import Label
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
from fedssca.problem.tasks import Task
from fedssca.problem.weights import SAMPLE_WEIGHT, ClassWeights, weighted
from fedssca.run.build.calibrate import auto_for
from fedssca.run.certified import with_certificate
from fedssca.run.estimators.clients import (
    ClientColumns,
    check_same_features,
    checked,
    features,
    names_of_labels,
    parties_of,
    with_weights,
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

__all__ = ["FederatedEstimator", "LabelledParts"]

CHUNK = 4096
"""The number of rows that are predicted at a time."""


class LabelledParts(NamedTuple):
    """The clients with y as it is trained, and what y means."""

    parts: list[ClientColumns]
    names: Sequence[Label]
    """The names of the classes or labels; none if y is a number."""
    task: Task


class FederatedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that is trained over several clients and keeps stated limits."""

    _numbers: ClassVar[bool] = False
    """Whether y holds numbers, and not classes."""
    result_: Result
    feasible_: bool
    converged_: bool
    certified_: bool | None
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
        class_weight: ClassWeights | None = None,
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
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any = None, clients: int = 5, sample_weight: Any = None) -> Self:
        """Train with `fit(parties)` or with `fit(X, y, clients)`.

        `parties` is a list with one (X, y) or {"x": ..., "y": ...} per client. X and y are divided
        at random among `clients` clients. The batch is at most the rows of the smallest client.
        `sample_weight` are the weights of the rows in the objective, with `parties` one array for
        each; limits and metrics count every row once.
        """
        if self.batch < 1:
            raise UserError(f"batch = {self.batch}: it must be at least 1")
        given = parties_of(X) if y is None else [{"x": X, "y": y}]
        if sample_weight is not None:
            given = with_weights(given, sample_weight if y is None else [sample_weight])
        aside = self._set_aside(given)
        parts = self._encoded(given, y is None, aside)
        check_same_features(parts)
        labelled = self._labelled(parts, aside, names_of_labels(given))
        coded, kinds = without_text(labelled.parts)
        rows = Rows.of(coded) if y is None else by_sample(coded[0], clients, seed=self.seed)
        rows, promise = self._promise(rows, aside)
        beside = dict(rows.beside())
        beside["y"] = labelled.task.labels(beside["y"], labelled.names)
        known = TrainingRows(
            beside, labelled.names, rows.sizes, None, kinds, task=labelled.task.name
        )
        limits = limits_of(self.constraints, rows, known)
        task = weighted(labelled.task, self._class_weights(known), SAMPLE_WEIGHT in known.columns)
        problem = classifier(
            self._network(),
            limits,
            objective=self.objective,
            l2=self.l2,
            seed=self.seed,
            task=task,
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
            checked({**beside, **part, "x": own}, o, self._numbers)
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

    def _labelled(
        self, parts: Sequence[ClientColumns], aside: Sequence[np.ndarray], names: Sequence[str]
    ) -> LabelledParts:
        """Return the clients with y as it is trained, the names of classes, and the task.

        `names` are those of several labels at once; none if y has one label per row.
        """
        raise NotImplementedError

    def _class_weights(self, known: TrainingRows) -> np.ndarray | None:
        """Return the weights of the classes in the objective; None: all weigh the same."""
        del known
        return None

    @property
    def _outputs(self) -> int:
        """The number of scores."""
        raise NotImplementedError

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
        outputs = self._outputs
        if isinstance(self.model, Model | JoinedModel):
            return _check_fit(self.model, inputs, outputs)
        if self.model == "mlp":
            if isinstance(self.hidden, int) and self.hidden < 1:
                raise UserError(f"hidden = {self.hidden}: it must be at least 1")
            return mlp(inputs, self.hidden, outputs, biases=self._numbers or self._several or None)
        if self.model == "linear":
            return linear(inputs, outputs, exclusive=not self._several)
        raise UserError(
            f'model = {self.model!r}: it must be "mlp", "linear" or a model of fedssca, such as '
            "fedssca.cnn((height, width), classes)"
        )

    @property
    def _several(self) -> bool:
        """Whether y was a table of several labels."""
        return False

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


def _check_fit(model: AnyModel, features: int, outputs: int) -> AnyModel:
    """Return the model if its numbers of features and scores are those of the data."""
    params = model.init(0)
    width = model.width(params)
    rows = jax.ShapeDtypeStruct((1, width), np.float32)
    scores = jax.eval_shape(model.apply, params, rows)
    if (width, scores.shape[1]) != (features, outputs):
        raise UserError(
            f"the model takes {width} features and gives {scores.shape[1]} scores, "
            f"the data have {features} features and need {outputs} scores: build it to fit"
        )
    return model
