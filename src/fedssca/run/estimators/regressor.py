"""A regressor with the interface of scikit-learn, trained over clients with constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import RegressorMixin

from fedssca.data.encode import EncodingRules, TargetScale, summarise
from fedssca.data.encode.targets import target_numbers, target_scale
from fedssca.errors import UserError
from fedssca.problem.forms import AnyModel
from fedssca.problem.task_kinds import HUBER_WIDTH, QUANTILE_LEVEL, LossName, target_kind
from fedssca.problem.tasks import Task, regression
from fedssca.run.estimators.clients import ClientColumns
from fedssca.run.estimators.federated import FederatedEstimator, LabelledParts

__all__ = ["FederatedRegressor"]


class FederatedRegressor(RegressorMixin, FederatedEstimator):  # type: ignore[misc]
    """A regressor that is trained over several clients and keeps stated limits.

    `loss` is "squared", "huber" (linear for errors above `huber_width` standard deviations of y),
    "quantile" (which predicts the quantile `quantile` of y) or "poisson" (for counts). y is
    standardised inside; predictions and limits are in its own unit. `constraints` may contain
    mappings such as {"kind": "rmse", "limit": 50, "column": "sex"}: the kinds mae, rmse, mae_gap,
    beyond (with `bound`) and bias are about errors. The other parameters, and what there is after
    `fit`, are those of `FederatedClassifier`; `target_` is the unit in which y was trained.
    """

    _numbers: ClassVar[bool] = True
    target_: TargetScale

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
        loss: LossName = "squared",
        huber_width: float = HUBER_WIDTH,
        quantile: float = QUANTILE_LEVEL,
    ) -> None:
        super().__init__(
            model,
            hidden,
            constraints,
            objective,
            l2,
            rounds,
            batch,
            seed,
            column,
            max_rounds,
            verbose,
            encode,
            keep,
            drop,
            confidence,
            calibration_fraction,
            certify,
        )
        self.loss = loss
        self.huber_width = huber_width
        self.quantile = quantile

    def _labelled(
        self, parts: Sequence[ClientColumns], aside: Sequence[np.ndarray], names: Sequence[str]
    ) -> LabelledParts:
        del names
        self._task(TargetScale(0.0, 1.0))  # an unknown loss is refused before anything else
        kind = target_kind("regression", self.loss)
        numbers = [target_numbers("y", part["y"], kind) for part in parts]
        y, own = np.concatenate(numbers), ~np.concatenate(aside)
        if own.sum() < 2:
            raise UserError(
                f"there is {own.sum()} sample to train with: a regressor needs 2 or more"
            )
        found = summarise("y", y, own, EncodingRules())
        self.target_ = target_scale("y", found.moments, kind)
        coded = [
            {**part, "y": self.target_.encode(own)}
            for part, own in zip(parts, numbers, strict=True)
        ]
        return LabelledParts(coded, (), self._task(self.target_))

    def _task(self, target: TargetScale) -> Task:
        return regression(self.loss, target, width=self.huber_width, quantile_level=self.quantile)

    @property
    def _outputs(self) -> int:
        return 1

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted number of every row, in the unit of y."""
        scores = self._scores(X)
        return self._task(self.target_).predict(scores)
