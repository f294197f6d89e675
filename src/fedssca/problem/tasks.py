"""A task: what scores mean. It has a loss, the metrics of every run, and the unit of its target.

    classification    scores (B, L); the class of the largest is predicted
    multilabel        scores (B, M), one for each label; labels with a positive score are predicted
    regression        one score s; shift + scale * link(s) is predicted, with link(s) = s, or exp(s)
                      for counts (`data/encode/targets.py` has shift and scale)

Everything that depends on the task asks the `Task` of its problem, so that models, constraints,
methods, evaluations and deployments need to know none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np

from fedssca.data.encode.label_sets import sets_of
from fedssca.data.encode.targets import TargetScale
from fedssca.errors import UserError, nearest
from fedssca.problem.decisions import EACH_LABEL, ONE_CLASS, Decisions, present
from fedssca.problem.losses import (
    RowLoss,
    binary_cross_entropy,
    cross_entropy,
    huber,
    own_loss,
    pinball,
    poisson,
    poisson_deviance,
    quantile,
    squared,
)
from fedssca.problem.problem import Array, Batch, Rate
from fedssca.problem.task_kinds import HUBER_WIDTH, QUANTILE_LEVEL, LossName, TaskName

__all__ = [
    "CLASSIFICATION",
    "UNIT",
    "ScoreMeasures",
    "Task",
    "classification",
    "multilabel",
    "regression",
]

ScoreMeasures: TypeAlias = Callable[[Array, Batch], dict[str, Sequence[Rate]]]
"""(scores, batch) -> the quantities to report by name, each a sum of rates."""
UNIT = TargetScale(0.0, 1.0)
"""The unit of targets that are trained as they are."""
CHANCE = 0.5
"""About the loss of a model that predicts the mean of a standardised target."""


class Task(NamedTuple):
    """What scores mean: pure functions of scores and a batch."""

    name: TaskName
    loss: RowLoss
    """(scores, batch) -> the loss of every row."""
    measures: ScoreMeasures
    """(scores, batch) -> the metrics of every run, of which "cost" is the mean loss."""
    level: Callable[[int], float]
    """The number of scores -> about the loss at the start of training."""
    target: TargetScale | None = None
    """The unit of y; None: y is a class or a label set."""
    link: Callable[[Array], Array] | None = None
    """(scores (B, 1)) -> the predicted y (B,); None: a class is predicted."""
    names: frozenset[str] = frozenset({"cost"})
    """The names of the measures; all of them are means over all rows."""
    counted: frozenset[str] = frozenset()
    """The measures to which a row adds 0 or 1."""
    rooted: frozenset[str] = frozenset()
    """The measures of which the square root is reported."""
    own: bool = False
    """The loss is a function of the user."""
    at_least: float | None = 0.0
    """The least value of y: 0 for classes, label sets and counts; None: any number."""
    weight: Callable[[Batch], Array] | None = None
    """The weight of every row in the objective (`problem/weights.py`); None: all weigh the same."""
    decisions: Decisions = ONE_CLASS
    """How scores decide for classes or labels; a regression has none."""

    def objective(self, scores: Array, batch: Batch) -> Array:
        """The loss of every row times its weight."""
        loss = self.loss(scores, batch)
        return loss if self.weight is None else self.weight(batch).astype(loss.dtype) * loss

    def error(self, scores: Array, batch: Batch) -> Array:
        """Predicted y less y of every row, in the unit in which the target is trained."""
        if self.link is None:
            raise UserError(
                "a limit on errors of numbers needs a regression; of a classifier limit error, "
                "fnr, fpr, recall or precision"
            )
        return self.link(scores) - batch["y"]

    @property
    def scale(self) -> float:
        """How much of the target's own unit the unit of y is; 1 if y is a class."""
        return 1.0 if self.target is None else self.target.scale

    def outputs(self, classes: int) -> int:
        """The number of scores that a model needs, for data with so many classes."""
        return classes if self.link is None else 1

    def labels(self, y: np.ndarray, names: Sequence[Any]) -> np.ndarray:
        """The labels y as limits take them: classes, or a table with a column per label."""
        return y if self.decisions.exclusive else sets_of(y, len(names))

    def predict(self, scores: np.ndarray) -> np.ndarray:
        """The predictions of a regression, in the target's own unit."""
        assert self.link is not None
        assert self.target is not None
        return self.target.decode(np.asarray(self.link(jnp.asarray(scores))))

    def report(self, values: Mapping[str, float]) -> dict[str, float]:
        """What people read of the measures of a set of rows: R2 in place of the means of y and y^2.

        R2 = 1 - sum (prediction - target)^2 / sum (target - its mean on these rows)^2.
        """
        out = {name: value for name, value in values.items() if name not in _HELPERS}
        if "rmse" in out and all(name in values for name in _HELPERS):
            mean, square = (values[name] for name in _HELPERS)
            if square > mean * mean:
                out["r2"] = 1 - (out["rmse"] / self.scale) ** 2 / (square - mean * mean)
        return out


_HELPERS = ("target_mean", "target_square")
"""Measures that only R2 needs: the means of y and of its square."""


def _class_measures(scores: Array, batch: Batch) -> dict[str, Sequence[Rate]]:
    hit = (scores.argmax(axis=1) == batch["y"]).astype(scores.dtype)
    one = jnp.ones_like(hit)
    return {
        "cost": [(1.0, cross_entropy(scores, batch), one)],
        "accuracy": [(1.0, hit, one)],
    }


CLASSIFICATION = Task(
    "classification",
    cross_entropy,
    _class_measures,
    math.log,
    names=frozenset({"cost", "accuracy"}),
    counted=frozenset({"accuracy"}),
)
"""Classes, with the cross-entropy as loss."""


def classification(loss: str | None = None) -> Task:
    """Classes, with the cross-entropy, or with a loss of yours: "package.module:function"."""
    if loss is None:
        return CLASSIFICATION
    row_loss = own_loss(loss)

    def measures(scores: Array, batch: Batch) -> dict[str, Sequence[Rate]]:
        rates = _class_measures(scores, batch)
        one = jnp.ones(len(scores), scores.dtype)
        return {**rates, "cost": [(1.0, row_loss(scores, batch), one)]}

    return CLASSIFICATION._replace(loss=row_loss, measures=measures, own=True)


def multilabel(names: Sequence[Any], loss: str | None = None) -> Task:
    """Several labels at once, each of which a row has or has not; y is its label set.

    The loss is the mean over the labels of the binary cross-entropy, log(1 + exp s_k) - y_k s_k.
    A loss of yours, "package.module:function", gets y as a table of zeros and ones (B, M). The
    accuracy of label k is reported as "accuracy[<its name>]".
    """
    row_loss: RowLoss = binary_cross_entropy
    if loss is not None:
        own = own_loss(loss)

        def row_loss(scores: Array, batch: Batch) -> Array:
            y = present(batch["y"], scores.shape[1]).astype(scores.dtype)
            return own(scores, {**batch, "y": y})

    each = {f"accuracy[{name}]": place for place, name in enumerate(names)}

    def measures(scores: Array, batch: Batch) -> dict[str, Sequence[Rate]]:
        if scores.shape[1] != len(names):
            raise UserError(
                f"the model has {scores.shape[1]} scores per row: {len(names)} labels need one each"
            )
        there, chosen = present(batch["y"], len(names)), scores > 0
        right = (there == chosen).astype(scores.dtype)
        one = jnp.ones_like(right[:, 0])
        both = (there & chosen).mean(axis=1, dtype=scores.dtype) / 2
        either = (
            there.mean(axis=1, dtype=scores.dtype) + chosen.mean(axis=1, dtype=scores.dtype)
        ) / 2
        return {
            "cost": [(1.0, row_loss(scores, batch), one)],
            "label_accuracy": [(1.0, right.mean(axis=1), one)],
            "exact_match": [(1.0, right.min(axis=1), one)],
            "f1_micro": [(2.0, both, either)],
            **{name: [(1.0, right[:, place], one)] for name, place in each.items()},
        }

    return Task(
        "multilabel",
        row_loss,
        measures,
        lambda _: math.log(2),
        names=frozenset({"cost", "label_accuracy", "exact_match", *each}),
        counted=frozenset({"exact_match", *each}),
        own=loss is not None,
        decisions=EACH_LABEL,
    )


def regression(
    loss: LossName | str = "squared",
    target: TargetScale = UNIT,
    *,
    width: float = HUBER_WIDTH,
    quantile_level: float = QUANTILE_LEVEL,
) -> Task:
    """A number as target, y = (target - shift) / scale, and one score s per row.

    "squared" is (s - y)^2 / 2. "huber" is the same for |s - y| <= `width` and linear beyond.
    "quantile" predicts the quantile `quantile_level` of the target. "poisson" is exp(s) - y s, for
    counts. A name with a colon is a loss of yours, "package.module:function". Metrics and limits
    are in the target's own unit.
    """
    makers: dict[str, Callable[[], RowLoss]] = {
        "squared": lambda: squared,
        "huber": lambda: huber(width),
        "quantile": lambda: quantile(quantile_level),
        "poisson": lambda: poisson,
    }
    own = ":" in loss
    if not own and loss not in makers:
        raise UserError(f"loss = {loss!r} is unknown: {nearest(loss, makers)}")
    row_loss, unit = own_loss(loss) if own else makers[loss](), target.scale
    further = {"poisson": ("deviance",), "quantile": ("pinball", "below")}

    def link(scores: Array) -> Array:
        if scores.shape[1] != 1:
            raise UserError(
                f"the model has {scores.shape[1]} scores per row: a regression needs one"
            )
        return jnp.exp(scores[:, 0]) if loss == "poisson" else scores[:, 0]

    def measures(scores: Array, batch: Batch) -> dict[str, Sequence[Rate]]:
        y, found = batch["y"], link(scores)
        error, one = found - y, jnp.ones_like(found)
        out: dict[str, Sequence[Rate]] = {
            "cost": [(1.0, row_loss(scores, batch), one)],
            "rmse": [(unit * unit, jnp.square(error), one)],
            "mae": [(unit, jnp.abs(error), one)],
            "target_mean": [(1.0, y * one, one)],
            "target_square": [(1.0, jnp.square(y) * one, one)],
        }
        if loss == "poisson":
            out["deviance"] = [(unit, poisson_deviance(scores, batch), one)]
        if loss == "quantile":
            out["pinball"] = [(unit, pinball(quantile_level, error), one)]
            out["below"] = [(1.0, (error >= 0).astype(found.dtype), one)]
        return out

    return Task(
        "regression",
        row_loss,
        measures,
        lambda _: CHANCE,
        target,
        link,
        names=frozenset({"cost", "rmse", "mae", *_HELPERS, *further.get(loss, ())}),
        counted=frozenset({"below"}),
        rooted=frozenset({"rmse"}),
        own=own,
        at_least=0.0 if loss == "poisson" else None,
    )
