"""Metrics of classifiers against those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, f1_score, roc_auc_score

from fedssca.evaluate.class_metrics import class_metrics


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_are_those_of_scikit_learn(classes: int) -> None:
    rng = np.random.default_rng(classes)
    y = rng.integers(0, classes, 300)
    scores = np.round(rng.normal(size=(300, classes)) + 1.5 * (y[:, None] == np.arange(classes)), 1)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    found = class_metrics(chances, y)
    if classes == 2:
        assert found["auc"] == pytest.approx(roc_auc_score(y, chances[:, 1]))
        assert found["brier"] == pytest.approx(brier_score_loss(y, chances[:, 1]))
    else:
        assert found["auc"] == pytest.approx(roc_auc_score(y, chances, multi_class="ovr"))
    assert found["f1"] == pytest.approx(f1_score(y, chances.argmax(axis=1), average="macro"))


def test_calibrated_probabilities_have_no_calibration_error() -> None:
    sure = np.repeat([0.65, 0.85], 100)
    y = np.concatenate([np.arange(100) >= 65, np.arange(100) >= 85]).astype(int)
    chances = np.stack([sure, 1 - sure], axis=1)
    assert class_metrics(chances, y)["calibration_error"] == pytest.approx(0.0)
    assert class_metrics(chances, 1 - y)["calibration_error"] == pytest.approx(0.5)
    assert "auc" not in class_metrics(chances, np.zeros(200, int))
