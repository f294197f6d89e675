"""Is a given row among those behind a message?

There are two scores of a candidate (x, y). The AUC of a score is the probability that a row behind
the message scores higher than a row that is not behind it; 0.5 is chance.

    span     |V V' x|^2 / |x|^2, where V is the row space of the first layer's gradient
             sum_n a_n delta_n x_n'; with fewer than m J rows it is the span of the rows
    slope    (gradient of (x, y))' message / |gradient of (x, y)|
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from sklearn.metrics import roc_auc_score

from fedssca.studies.audit.audited_run import AuditedRun, BatchRows
from fedssca.studies.audit.count import nonzero_svd
from fedssca.studies.audit.message import ObservedMessage

__all__ = ["Membership", "auc", "membership"]


class Membership(NamedTuple):
    """The AUC of both scores, averaged over a few messages."""

    span: float
    """The AUC of the score `span`."""
    slope: float
    """The AUC of the score `slope`."""
    error: float
    """The standard error of the larger AUC."""

    @property
    def auc(self) -> float:
        """The AUC of the better score."""
        return max(self.span, self.slope)


def membership(
    run: AuditedRun, messages: list[ObservedMessage], nonmembers: BatchRows
) -> Membership:
    """Test the rows behind each message against rows that are behind none."""
    spans, slopes = [], []
    for message in messages:
        inside, outside = _span(message, message.group.x), _span(message, nonmembers.x)
        spans.append(auc(inside, outside))
        slopes.append(auc(_slope(run, message, message.group), _slope(run, message, nonmembers)))
    members = sum(len(message.group.x) for message in messages)
    best = max(float(np.mean(spans)), float(np.mean(slopes)))
    # The standard error of a mean over members and nonmembers; 0 if all are distinguished.
    spread = np.sqrt(max(best * (1 - best), 0.0) * (1 / members + 1 / len(nonmembers.x)))
    return Membership(float(np.mean(spans)), float(np.mean(slopes)), float(spread))


def auc(inside: np.ndarray, outside: np.ndarray) -> float:
    """Return P(inside > outside) + P(inside = outside) / 2."""
    members = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    return float(roc_auc_score(members, np.concatenate([inside, outside])))


def _span(message: ObservedMessage, x: np.ndarray) -> np.ndarray:
    """Return how much of x lies in the leading n directions of the row space."""
    _, _, basis = nonzero_svd(message.first)
    inside = ((x @ basis[: len(message.group.x)].T) ** 2).sum(1)
    return np.round(inside / np.maximum((x**2).sum(1), 1e-30), 7)


def _slope(run: AuditedRun, message: ObservedMessage, group: BatchRows) -> np.ndarray:
    belief = jnp.eye(len(run.kinds["y"]))[group.kind]
    found = run.gradients(jnp.asarray(group.x @ run.first.T), belief)
    top, delta = (np.asarray(part) for part in found)
    square = (top**2).sum((1, 2)) + (delta**2).sum((1, 2)) * (group.x**2).sum(1)
    along = delta.reshape(len(delta), -1) @ message.first
    seen = (along * group.x).sum(1)
    return (seen + np.einsum("nmd,md->n", top, message.top)) / np.sqrt(np.maximum(square, 1e-30))
