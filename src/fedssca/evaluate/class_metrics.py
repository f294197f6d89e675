"""Metrics of a classifier on rows whose scores and classes (or labels) are in one place.

AUC and the calibration error are no sums over rows, so they are computed where the rows are: on the
held-out rows of a simulated run, and on the rows of a file with labels that are predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

__all__ = ["class_metrics", "label_metrics"]

BINS = 10
"""The number of intervals of equal width in which probabilities are compared with shares."""

Array = np.ndarray


def class_metrics(probabilities: Array, y: Array) -> dict[str, float]:
    """AUC, F1, Brier score and calibration error, from probabilities (N, L) and classes (N,).

    auc                  the probability that a row of a class gets a higher probability of it than
                         a row of another class, ties counted half; with more than two classes the
                         mean over the classes
    f1                   2 hits / (predicted + true) of every class, and the mean of these
    brier                mean of sum_l (p_l - 1[y = l])^2; with two classes half of it, (p_1 - y)^2
    calibration_error    the mean distance, over the rows, of the probability of the predicted
                         class from the share of right predictions, in ten intervals of probability

    AUC and F1 are left out if a class has no row.
    """
    classes = probabilities.shape[1]
    own = y[:, None] == np.arange(classes)
    squares = float(np.square(probabilities - own).sum(axis=1).mean())
    found = {
        "brier": squares / 2 if classes == 2 else squares,
        "calibration_error": _calibration_error(probabilities, y),
    }
    counts = own.sum(axis=0)
    if (counts > 0).all() and classes > 1:
        chosen = probabilities.argmax(axis=1)[:, None] == np.arange(classes)
        each = 2 * (chosen & own).sum(axis=0) / (chosen.sum(axis=0) + counts)
        places = [1] if classes == 2 else range(classes)
        auc = np.mean([_auc(probabilities[:, place], own[:, place]) for place in places])
        found = {"auc": float(auc), "f1": float(each.mean())} | found
    return found


def label_metrics(probabilities: Array, own: Array, names: Sequence[Any]) -> dict[str, Any]:
    """The means over several labels, and per_label with those of every label.

    They are made from probabilities (N, M) and a table of zeros and ones (N, M). Each label has its
    accuracy, AUC, F1 (2 hits / (predicted + true)), log loss, Brier score (p - y)^2 and calibration
    error, as two classes have. The means are those over the labels ("macro"). AUC is left out
    for a label that all rows have, or none, and from the means then too.
    """
    tiny = np.finfo(probabilities.dtype).tiny
    each: dict[str, dict[str, float]] = {}
    for place, name in enumerate(names):
        chance, y = probabilities[:, place], own[:, place] != 0
        chosen = chance > 0.5
        found = {
            "accuracy": float((chosen == y).mean()),
            "f1": float(2 * (chosen & y).sum() / max(1, chosen.sum() + y.sum())),
            "log_loss": float(-np.log(np.maximum(np.where(y, chance, 1 - chance), tiny)).mean()),
            "brier": float(np.square(chance - y).mean()),
            "calibration_error": _calibration_error(np.stack([1 - chance, chance], axis=1), y * 1),
        }
        each[str(name)] = ({"auc": _auc(chance, y)} if 0 < y.sum() < len(y) else {}) | found
    kinds = ["auc", "f1", "brier", "calibration_error"]
    means = {
        kind: float(np.mean([found[kind] for found in each.values()]))
        for kind in kinds
        if all(kind in found for found in each.values())
    }
    return means | {"per_label": each}


def _auc(scores: Array, own: Array) -> float:
    """The statistic of Mann and Whitney over the number of pairs."""
    inside = int(own.sum())
    ranks = float(scipy.stats.rankdata(scores)[own].sum()) - inside * (inside + 1) / 2
    return ranks / (inside * (len(own) - inside))


def _calibration_error(probabilities: Array, y: Array) -> float:
    chosen = probabilities.argmax(axis=1)
    sure, right = probabilities.max(axis=1), chosen == y
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, sure - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(y))
