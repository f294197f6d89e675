"""Tasks, losses and metrics by name: what a run predicts, and what it reports of it.

The configuration, commands and pages read these tables. They import neither JAX nor numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from fedssca.data.encode.targets import TargetKind

__all__ = [
    "HUBER_WIDTH",
    "METRICS",
    "QUANTILE_LEVEL",
    "LossName",
    "Metric",
    "TaskName",
    "main_metric",
    "target_kind",
]

TaskName: TypeAlias = Literal["classification", "multilabel", "regression"]
LossName: TypeAlias = Literal["squared", "huber", "quantile", "poisson"]

HUBER_WIDTH = 1.0
"""The error, in standard deviations of the target, from which on the Huber loss is linear."""
QUANTILE_LEVEL = 0.5
"""The quantile that the loss "quantile" predicts: the median."""


class Metric(NamedTuple):
    """A number that tells how good predictions are."""

    words: str
    short: str
    """The heading of a narrow column."""
    share: bool = False
    """It is shown as a percentage."""
    summed: bool = True
    """It follows from sums over rows; others need the scores of all rows in one place."""

    def shown(self, value: float | None) -> str:
        """The value as text; "-" if it is not known."""
        if value is None:
            return "-"
        return f"{value:.2%}" if self.share else f"{value:.4g}"


METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", "acc.", share=True),
    "label_accuracy": Metric("accuracy over all labels", "label acc.", share=True),
    "exact_match": Metric("share of rows with all labels right", "exact", share=True),
    "f1_micro": Metric("micro F1", "micro F1"),
    "auc": Metric("AUC", "AUC", summed=False),
    "f1": Metric("F1", "F1", summed=False),
    "brier": Metric("Brier score", "Brier", summed=False),
    "calibration_error": Metric("calibration error", "cal. err.", summed=False),
    "pinball": Metric("pinball loss", "pinball"),
    "deviance": Metric("Poisson deviance", "deviance"),
    "rmse": Metric("RMSE", "RMSE"),
    "mae": Metric("mean absolute error", "MAE"),
    "r2": Metric("R²", "R²"),
    "below": Metric("share of rows at or below their prediction", "below", share=True),
}
"""The metrics of all tasks by name. Of those that a run has, the first one is its main metric."""


def target_kind(task: TaskName, loss: LossName | str) -> TargetKind:
    """What the label of a task holds."""
    if task != "regression":
        return "class" if task == "classification" else "labels"
    return "count" if loss == "poisson" else "number"


def main_metric(row: Mapping[str, Any], part: str = "test") -> tuple[str, Metric, float | None]:
    """The main metric in a row of results: its name there, what it is, and its value.

    >>> name, metric, value = main_metric({"test_rmse": 55.25, "test_mae": 44.0})
    >>> name, metric.shown(value)
    ('test_rmse', '55.25')
    """
    prefix = f"{part}_" if part else ""
    for name, metric in METRICS.items():
        if row.get(prefix + name) is not None:
            return prefix + name, metric, float(row[prefix + name])
    return f"{prefix}accuracy", METRICS["accuracy"], None
