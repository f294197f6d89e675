"""Is a given row among those behind a message?

Two scores of a candidate (x, y), each judged by its AUC: the chance that a row which is behind the
message scores higher than one which is not (0.5: no better than a coin).

    span     |V V' x|^2 / |x|^2, V the row space of the first layer's gradient,
             sum_n a_n delta_n x_n': below m J rows, it is the span of the rows
    slope    (gradient of (x, y))' message / |gradient of (x, y)|
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.studies.audit.count import span
from fedssca.studies.audit.scene import Group, Scene
from fedssca.studies.audit.view import View

__all__ = ["Membership", "auc", "membership"]


class Membership(NamedTuple):
    """AUC of both scores, pooled over a few messages; `error`: the larger one's standard error."""

    span: float
    slope: float
    error: float

    @property
    def auc(self) -> float:
        """The better attack's."""
        return max(self.span, self.slope)


def membership(scene: Scene, views: list[View], strangers: Group) -> Membership:
    """Members of each view against rows that are in none."""
    spans, slopes = [], []
    for view in views:
        inside, outside = _span(view, view.group.x), _span(view, strangers.x)
        spans.append(auc(inside, outside))
        slopes.append(auc(_slope(scene, view, view.group), _slope(scene, view, strangers)))
    members = sum(len(view.group.x) for view in views)
    best = max(float(np.mean(spans)), float(np.mean(slopes)))
    # Of a mean over members and strangers; nothing where all are told apart.
    spread = np.sqrt(max(best * (1 - best), 0.0) * (1 / members + 1 / len(strangers.x)))
    return Membership(float(np.mean(spans)), float(np.mean(slopes)), float(spread))


def auc(inside: np.ndarray, outside: np.ndarray) -> float:
    """P(inside > outside) + P(equal) / 2."""
    order = np.sort(outside)
    below = np.searchsorted(order, inside, "left")
    equal = np.searchsorted(order, inside, "right") - below
    return float((below + equal / 2).mean() / len(outside))


def _span(view: View, x: np.ndarray) -> np.ndarray:
    """How much of x lies in the row space; noise fills it, so the leading rows' number is kept."""
    _, _, basis = span(view.first)
    inside = ((x @ basis[: len(view.group.x)].T) ** 2).sum(1)
    return np.round(inside / np.maximum((x**2).sum(1), 1e-30), 7)


def _slope(scene: Scene, view: View, group: Group) -> np.ndarray:
    belief = jnp.eye(len(scene.kinds["y"]))[group.kind]
    found = scene.gradients(jnp.asarray(group.x @ scene.first.T), belief)
    top, delta = (np.asarray(part) for part in found)
    square = (top**2).sum((1, 2)) + (delta**2).sum((1, 2)) * (group.x**2).sum(1)
    along = delta.reshape(len(delta), -1) @ view.first
    seen = (along * group.x).sum(1)
    return (seen + np.einsum("nmd,md->n", top, view.top)) / np.sqrt(np.maximum(square, 1e-30))
